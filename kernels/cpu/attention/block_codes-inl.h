// Shared by scores and values of codes in blocks (q8_0, q4_0): words of rows in vectors, and their scales.
//
// A vector holds words of one row, or of two where a row is half a vector. A block of 32 elements is 8 words of q8_0 or
// 4 of q4_0; which element lies in a slot of a word, F::element() says:
//
//   q8_0  word w of the row     e[4w+3]  e[4w+2]  e[4w+1]  e[4w]                              8 bits each, signed
//   q4_0  word w of a block     e[4w+19] e[4w+3] e[4w+18] e[4w+2] e[4w+17] e[4w+1] e[4w+16] e[4w]   4 bits each
//
// Integer levels (integer_levels-inl.h) become words of q8_0 as they are loaded.
//
// Private to kernels/cpu; compiled once a target.
#if defined(KV_BLOCK_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_BLOCK_CODES_INL_H_
#undef KV_BLOCK_CODES_INL_H_
#else
#define KV_BLOCK_CODES_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/attention/codes-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/integer_levels-inl.h"
#include "kernels/format/list.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Words of a block.
template <class F>
constexpr int kWordsPerBlock = kGgmlBlock* F::kBits / 32;
template <class F>
constexpr int kBlockShift = kWordsPerBlock<F> == 8 ? 3 : 2;  // its logarithm

// Calls call(format) with the format of codes in blocks.
template <class Call>
HWY_INLINE void visit_block_codes(const Encoding& e, const Call& call) {
  visit_format(e.format, [&](auto format) KV_ATTR {
    using F = decltype(format);
    if constexpr (F::kScaling == Scaling::kBlock && F::kElements == Elements::kCodes) call(format);
  });
}

// Rows of small integers, whose words are those of q8_0 once they are loaded.
template <class F>
struct AsBytes {
  using Stored = F;
  static constexpr int kBits = Q8_0Format::kBits;
  static constexpr uint32_t kSignBits = 0;
  static constexpr int element(int head_dim, int word, int slot) {
    return Q8_0Format::element(head_dim, word, slot);
  }
};

// Calls call(format) with the format of words of codes: those, and integer levels.
template <class Call>
HWY_INLINE void visit_block_rows(const Encoding& e, const Call& call) {
  visit_format(e.format, [&](auto format) KV_ATTR {
    using F = decltype(format);
    if constexpr (F::kScaling == Scaling::kBlock && F::kElements == Elements::kCodes) call(format);
    if constexpr (requires { F::kBlocks; }) call(AsBytes<F>());
  });
}

// Calls call(format, di, pack) with the format of codes in blocks, with vectors of words, and with the rows that a
// vector holds.
template <class Call>
HWY_INLINE void with_blocks(const Encoding& e, int head_dim, const Call& call) {
  constexpr std::integral_constant<int, 1> one;
  const auto choose = [&](auto format) KV_ATTR {
    using F = decltype(format);
    const hn::ScalableTag<int32_t> full;
    const int words = words_of(F::kBits, head_dim);
    if (words % static_cast<int>(hn::Lanes(full)) == 0) return call(format, full, one);
    if constexpr (hn::MaxLanes(full) > 8 && F::kBits < 8) {
      if (words * 2 == static_cast<int>(hn::Lanes(full)))
        return call(format, full, std::integral_constant<int, 2>());
    }
    if (words % 8 == 0) return call(format, hn::CappedTag<int32_t, 8>(), one);
    call(format, hn::CappedTag<int32_t, 4>(), one);
  };
  visit_block_rows(e, choose);
}

// Vectors of the words of one row, where kPack rows fill one of DI.
template <class DI, int kPack>
struct OneRow {
  using Tag = hn::Half<DI>;
};
template <class DI>
struct OneRow<DI, 1> {
  using Tag = DI;
};

// Stored words as unsigned codes.
template <class F, class DI>
HWY_INLINE hn::Vec<DI> unsigned_codes(DI di, hn::Vec<DI> words) {
  const hn::RebindToUnsigned<DI> du;
  if constexpr (F::kSignBits == 0) return words;
  return hn::BitCast(di, hn::Xor(hn::BitCast(du, words), hn::Set(du, F::kSignBits)));
}

template <class F, class DI>
HWY_INLINE hn::Vec<DI> load_words(DI di, const std::byte* row, int word) {
  if constexpr (requires { typename F::Stored; })
    return load_raised_levels<typename F::Stored>(di, row, word);
  else
    return unsigned_codes<F>(di, hn::LoadU(di, reinterpret_cast<const int32_t*>(row) + word));
}

// The same of kPack rows: row[0], and behind it row[next].
template <class F, int kPack, class DI>
HWY_INLINE hn::Vec<DI> load_rows(DI di, const std::byte* const* row, int next, int word) {
  if constexpr (kPack == 1) {
    return load_words<F>(di, row[0], word);
  } else {
    const hn::Half<DI> half;
    return hn::Combine(di, load_words<F>(half, row[next], word), load_words<F>(half, row[0], word));
  }
}

// ---- scales ----

// Scales of blocks first … of kRowStep rows from row j of `meta` [count] on, as stored: where they lie in memory, or copied
// to `scratch` with zeros behind. RowBits holds those of a row.
template <class RowBits>
HWY_INLINE const uint16_t* stored_scales(const std::byte* const* meta, int first, int blocks, int count,
                                         int j, RowBits (&scratch)[kRowStep]) {
  constexpr int kBlocks = sizeof(RowBits) / sizeof(uint16_t);
  const int64_t offset = first * int64_t{sizeof(uint16_t)};
  const int valid = std::min(kBlocks, blocks - first);
  if (blocks == kBlocks && j + kRowStep <= count && is_contiguous(meta + j, sizeof(RowBits)))
    return reinterpret_cast<const uint16_t*>(meta[j]);
  for (int i = 0; i < kRowStep; ++i) {
    scratch[i] = 0;
    if (j + i >= count) continue;
    if (valid == kBlocks) {  // its own branch, where the size is known
      std::memcpy(scratch + i, meta[j + i] + offset, sizeof(RowBits));
    } else {
      std::memcpy(scratch + i, meta[j + i] + offset, static_cast<size_t>(valid) * sizeof(uint16_t));
    }
  }
  return reinterpret_cast<const uint16_t*>(scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
