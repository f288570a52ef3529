// Keys in lanes: words of as many rows as a vector has lanes, transposed once for all queries of a group. A query's word then
// meets all lanes, and sums need none across them.
//
//   in      row 0   w3 w2 w1 w0         out     word 0   r3 r2 r1 r0      (in each 128-bit block: w0 of row 3, 2, 1, 0)
//           row 1   w3 w2 w1 w0                 word 1   r3 r2 r1 r0
//           row 2   w3 w2 w1 w0                 word 2   r3 r2 r1 r0
//           row 3   w3 w2 w1 w0                 word 3   r3 r2 r1 r0
//
// Private to kernels/cpu; compiled once a target.
#if defined(KV_KEY_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_KEY_LANES_INL_H_
#undef KV_KEY_LANES_INL_H_
#else
#define KV_KEY_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/codes-inl.h"
#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum + the products of pairs of 16-bit codes, added, with one pair of a query for all lanes.
template <class DI>
HWY_INLINE hn::Vec<DI> add_products_of_pair([[maybe_unused]] DI di, hn::Vec<DI> a, const int32_t* pair,
                                            hn::Vec<DI> sum) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(DI()) == 16) {
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "m"(*pair));
    return sum;
  }
#endif
  const hn::RepartitionToNarrow<DI> d16;
  return add_products(di, hn::BitCast(d16, a), hn::BitCast(d16, hn::Set(di, *pair)), sum);
}

// Word i of the four in each 128-bit block of rows' words -> words[i], lane j of the block is row j's.
template <class DI>
HWY_INLINE void transpose_words(DI di, hn::Vec<DI> (&words)[4]) {
  const hn::RepartitionToWide<DI> d64;
  const auto interleave = [&](auto d, auto a, auto b, auto& low, auto& high) KV_INLINE {
    low = hn::BitCast(di, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
    high = hn::BitCast(di, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
  };
  hn::Vec<DI> low[2], high[2];
  for (int i = 0; i < 2; ++i) interleave(di, words[2 * i], words[2 * i + 1], low[i], high[i]);
  interleave(d64, low[0], low[1], words[0], words[1]);
  interleave(d64, high[0], high[1], words[2], words[3]);
}

// Four vectors' 128-bit blocks, of which each vector has a row -> their columns, one after another.
template <class DI>
HWY_INLINE void transpose_blocks(DI di, hn::Vec<DI> (&v)[4]) {
  const hn::Vec<DI> a = v[0], b = v[1], c = v[2], d = v[3];
  if constexpr (hn::MaxLanes(DI()) == 8) {
    v[0] = hn::ConcatLowerLower(di, b, a);
    v[1] = hn::ConcatLowerLower(di, d, c);
    v[2] = hn::ConcatUpperUpper(di, b, a);
    v[3] = hn::ConcatUpperUpper(di, d, c);
  }
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(DI()) == 16) {
    const auto ab = _mm512_shuffle_i32x4(a.raw, b.raw, 0x44), cd = _mm512_shuffle_i32x4(c.raw, d.raw, 0x44);
    const auto ab_upper = _mm512_shuffle_i32x4(a.raw, b.raw, 0xee);
    const auto cd_upper = _mm512_shuffle_i32x4(c.raw, d.raw, 0xee);
    v[0].raw = _mm512_shuffle_i32x4(ab, cd, 0x88);
    v[1].raw = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    v[2].raw = _mm512_shuffle_i32x4(ab_upper, cd_upper, 0x88);
    v[3].raw = _mm512_shuffle_i32x4(ab_upper, cd_upper, 0xdd);
  }
#endif
}

// load(d, row, word) of 128 bits each of as many rows as fill a vector: row[0], row[4], row[8] …
template <class DI, class Load>
HWY_INLINE hn::Vec<DI> load_pieces(DI di, const std::byte* const* row, int word, const Load& load) {
  if constexpr (hn::MaxLanes(DI()) == 4) {
    return load(di, row[0], word);
  } else {
    const hn::Half<DI> half;
    constexpr int kUpper = hn::MaxLanes(DI()) / 2;
    return hn::Combine(di, load_pieces(half, row + kUpper, word, load), load_pieces(half, row, word, load));
  }
}

// The words from `word` on of as many keys as a vector has lanes, each load(d, row, word): sixteen at a time where a vector has as
// many lanes, else four.
template <int kWords, class DI, class Load>
HWY_INLINE void load_key_words(DI di, const std::byte* const* keys, int word, hn::Vec<DI> (&words)[kWords],
                               const Load& load) {
  constexpr bool kWhole = kWords == 16 && hn::MaxLanes(DI()) == 16;
  unroll<kWords / 4>([&](auto index) KV_INLINE {
    constexpr int kFirst = 4 * decltype(index)::value;
    hn::Vec<DI> some[4];
    for (int i = 0; i < 4; ++i)
      some[i] = kWhole ? load(di, keys[kFirst + i], word) : load_pieces(di, keys + i, word + kFirst, load);
    transpose_words(di, some);
    for (int i = 0; i < 4; ++i) words[kFirst + i] = some[i];
  });
  if constexpr (kWhole) {
    for (int i = 0; i < 4; ++i) {
      hn::Vec<DI> column[4];
      for (int rows = 0; rows < 4; ++rows) column[rows] = words[4 * rows + i];
      transpose_blocks(di, column);
      for (int rows = 0; rows < 4; ++rows) words[4 * rows + i] = column[rows];
    }
  }
}

// Calls call(words) with how many words of a row of so many are loaded at once: kFew, or 16.
template <int kFew, class Call>
HWY_INLINE void with_key_words(int words, const Call& call) {
  if constexpr (hn::MaxLanes(hn::ScalableTag<int32_t>()) == 16) {
    if (words % 16 == 0) return call(std::integral_constant<int, 16>());
  }
  call(std::integral_constant<int, kFew>());
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
