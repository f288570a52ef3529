// What both kinds of scores of codes in blocks share: words of four rows transposed, and queries spread over them
// (block_scores.cc has the picture). Private to kernels/cpu; compiled once a target.
#if defined(KV_BLOCK_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_BLOCK_WORDS_INL_H_
#undef KV_BLOCK_WORDS_INL_H_
#else
#define KV_BLOCK_WORDS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/block_codes-inl.h"
#include "kernels/cpu/lane_sums-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- queries ----

// Each lane of the 128-bit blocks of v in all four lanes of its block -> to [4, kPack, lanes], whose end it returns.
template <int kPack, class DI>
HWY_INLINE int32_t* store_spread(DI di, hn::Vec<DI> v, int32_t* to) {
  const hn::Vec<DI> spread[4] = {hn::Broadcast<0>(v), hn::Broadcast<1>(v), hn::Broadcast<2>(v),
                                 hn::Broadcast<3>(v)};
  for (const auto& x : spread) {
    for (int copy = 0; copy < kPack; ++copy, to += hn::Lanes(di)) hn::StoreU(x, di, to);
  }
  return to;
}

// The sum of each 128-bit block in all its lanes.
template <class DI>
HWY_INLINE hn::Vec<DI> sum_in_blocks(DI /*di*/, hn::Vec<DI> v) {
  const auto pairs = hn::Add(v, hn::Shuffle2301(v));
  return hn::Add(pairs, hn::Shuffle1032(pairs));
}

// ---- rows ----

// Word i of the four in each 128-bit block of rows' words -> words[i], lane j of the block is row j's.
template <class D16>
HWY_INLINE void transpose_words(D16 d16, hn::Vec<D16> (&words)[4]) {
  const hn::RepartitionToWide<D16> di;
  const hn::RepartitionToWide<decltype(di)> d64;
  const auto interleave = [&](auto d, auto a, auto b, auto& low, auto& high) KV_INLINE {
    low = hn::BitCast(d16, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
    high = hn::BitCast(d16, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
  };
  hn::Vec<D16> low[2], high[2];
  for (int i = 0; i < 2; ++i) interleave(di, words[2 * i], words[2 * i + 1], low[i], high[i]);
  interleave(d64, low[0], low[1], words[0], words[1]);
  interleave(d64, high[0], high[1], words[2], words[3]);
}

// Where the lanes of words of four rows, or of twice as many, find their scales in a group: lane i of each 128-bit
// block is row i's.
template <class F, int kPack, class DI>
HWY_INLINE hn::Vec<DI> scale_places(DI di, int group_blocks) {
  const int row_lanes = static_cast<int>(hn::Lanes(di)) / kPack;
  const auto lane = hn::Iota(di, 0);
  const auto second = hn::VecFromMask(di, hn::Gt(lane, hn::Set(di, row_lanes - 1)));  // -1: of the second row
  const auto row = hn::Sub(hn::And(lane, hn::Set(di, 3)), hn::ShiftLeft<2>(second));
  const auto word = hn::Add(lane, hn::And(second, hn::Set(di, -row_lanes)));
  return hn::Add(hn::Mul(row, hn::Set(di, group_blocks)), hn::ShiftRight<kBlockShift<F>>(word));
}

// The numbers at those places.
template <class DF>
HWY_INLINE hn::Vec<DF> look_up(DF df, const float* from, hn::Vec<hn::RebindToSigned<DF>> places) {
  if constexpr (hn::MaxLanes(DF()) == 16) {
    return hn::TableLookupLanes(hn::LoadU(df, from), hn::IndicesFromVec(df, places));
  } else {
    return hn::GatherIndex(df, from, places);
  }
}

// What lies in lane i of the 128-bit blocks is row i's -> its sum, row by row. With two rows in a vector, four rows
// have the lower half and four more the upper one.
template <int kPack, class D>
HWY_INLINE void store_rows(D d, hn::Vec<D> v, float* sums) {
  const hn::CappedTag<float, 4> four;
  const auto store_half = [&](auto part, auto half, float* at) KV_INLINE {
    hn::StoreU(hn::BitCast(four, sum_of_blocks(part, half)), four, at);
  };
  if constexpr (kPack == 1) {
    store_half(d, v, sums);
  } else {
    const hn::Half<D> half;
    store_half(half, hn::LowerHalf(half, v), sums);
    store_half(half, hn::UpperHalf(half, v), sums + 4);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
