// How integer codes lie in rows, and how they come into registers.
//
// Vectors hold 32-bit words of codes. Shifting and masking a word as two 16-bit halves gives *planes* of
// codes in 16-bit lanes (slots `plane` of the lower half and `plane + planes` of the upper half), ready for
// the multiply-add of neighbouring 16-bit lanes. Where a row's words do not fill a vector, a vector holds
// several rows (kPack). Codes are taken as unsigned; whoever sums them takes their middle off the sums.
// Private to kernels/cpu; compiled once a target.
#if defined(KV_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_INL_H_
#undef KV_CODES_INL_H_
#else
#define KV_CODES_INL_H_
#endif

#include <type_traits>

#include <hwy/highway.h>

#include "kernels/bits.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/formats.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- layouts ----

// kToken and kChannel (bits.h).
template <int kWidth>
struct Dealt {
  static constexpr int kBits = kWidth;
};

// Blocks: kFlip brings stored codes to unsigned ones, element() is what lies in slot `slot` of word `word`.
struct GgmlQ8 {
  static constexpr int kBits = 8;
  static constexpr int kWordsPerBlock = kGgmlBlock / 4;
  static constexpr uint32_t kFlip = 0x80808080u;
  static int element(int slot, int word) { return 4 * word + slot; }
};

struct GgmlQ4 {
  static constexpr int kBits = 4;
  static constexpr int kWordsPerBlock = kGgmlBlock / 8;
  static constexpr uint32_t kFlip = 0;
  static int element(int slot, int word) {
    const int block = word / kWordsPerBlock, byte = word % kWordsPerBlock * 4 + slot / 2;
    return block * kGgmlBlock + slot % 2 * (kGgmlBlock / 2) + byte;
  }
};

template <class Layout>
constexpr int kPlanes = 16 / Layout::kBits;
template <class Layout>
constexpr int32_t kMiddle = 1 << (Layout::kBits - 1);

// Calls with the layout of dealt codes.
template <class Call>
HWY_INLINE void with_bits(int bits, Call call) {
  if (bits == 8) return call(Dealt<8>());
  if (bits == 4) return call(Dealt<4>());
  call(Dealt<2>());
}

// Calls with the layout of codes in blocks, with vectors of words, and with the rows that a vector holds.
template <class Call>
HWY_INLINE void with_blocks(const Encoding& e, int head_dim, Call call) {
  const hn::ScalableTag<int32_t> full;
  constexpr std::integral_constant<int, 1> one;
  const auto sized = [&](auto layout) KV_ATTR {
    using Layout = decltype(layout);
    const int words = head_dim * Layout::kBits / 32;
    if (words % static_cast<int>(hn::Lanes(full)) == 0) return call(layout, full, one);
    if constexpr (hn::MaxLanes(full) > 8 && Layout::kBits < 8) {
      if (words * 2 == static_cast<int>(hn::Lanes(full)))
        return call(layout, full, std::integral_constant<int, 2>());
    }
    if (words % 8 == 0) return call(layout, hn::CappedTag<int32_t, 8>(), one);
    call(layout, hn::CappedTag<int32_t, 4>(), one);
  };
  if (e.format == Format::kQ8_0) return sized(GgmlQ8());
  sized(GgmlQ4());
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

// sum + the products of the 16-bit lanes, added in pairs.
template <class DI, class V16, class V32>
HWY_INLINE V32 add_products([[maybe_unused]] DI di, V16 a, V16 b, V32 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  // Not the intrinsic: GCC 12 copies its sums to and from vectors of another type, until there are more of
  // them than registers.
  if constexpr (hn::MaxLanes(DI()) == 16) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
    return sum;
  }
#endif
  V32 other = hn::Zero(di);
  const V32 first = hn::ReorderWidenMulAccumulate(di, a, b, sum, other);
  return hn::RearrangeToOddPlusEven(first, other);
}

// Plane kPlane of words: codes of kBits in 16-bit lanes.
template <int kBits, int kPlane, class D16>
HWY_INLINE hn::Vec<D16> plane(D16 d, hn::Vec<D16> words) {
  const hn::RebindToUnsigned<D16> du;
  const auto shifted = hn::ShiftRight<kBits * kPlane>(hn::BitCast(du, words));
  if constexpr (kBits * (kPlane + 1) == 16) return hn::BitCast(d, shifted);
  return hn::BitCast(d, hn::And(shifted, hn::Set(du, (1u << kBits) - 1u)));
}

template <class Layout, class DI>
HWY_INLINE hn::Vec<DI> load_words(DI di, const std::byte* row, int word) {
  const hn::RebindToUnsigned<DI> du;
  auto words = hn::LoadU(du, reinterpret_cast<const uint32_t*>(row) + word);
  if constexpr (Layout::kFlip != 0) words = hn::Xor(words, hn::Set(du, Layout::kFlip));
  return hn::BitCast(di, words);
}

// The same of kPack rows: row[0], and behind it row[next].
template <class Layout, int kPack, class DI>
HWY_INLINE hn::Vec<DI> load_rows(DI di, const std::byte* const* row, int next, int word) {
  if constexpr (kPack == 1) {
    return load_words<Layout>(di, row[0], word);
  } else {
    const hn::Half<DI> half;
    return hn::Combine(di, load_words<Layout>(half, row[next], word), load_words<Layout>(half, row[0], word));
  }
}

// x * scale rounded to a 16-bit integer, in the low half of each lane: the low bits of a float that much
// larger. Cheaper than a conversion, which must mind what is out of range.
constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23
template <class DF>
HWY_INLINE auto rounded_bits(DF df, hn::Vec<DF> x, hn::Vec<DF> scale) {
  return hn::BitCast(hn::RebindToSigned<DF>(), hn::MulAdd(x, scale, hn::Set(df, kRoundingShift)));
}

// The 16-bit integers in the low halves of `low` and `high`, side by side.
template <class DI>
HWY_INLINE hn::Vec<DI> pair_up(DI di, hn::Vec<DI> low, hn::Vec<DI> high) {
  return hn::Or(hn::And(low, hn::Set(di, 0xffff)), hn::ShiftLeft<16>(high));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
