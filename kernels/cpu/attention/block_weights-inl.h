// Attention weights of rows of codes in blocks: probability times scale, a weight for each block of a row, as codes under a step a
// block. Private to kernels/cpu; compiled once a target.
#if defined(KV_BLOCK_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_BLOCK_WEIGHTS_INL_H_
#undef KV_BLOCK_WEIGHTS_INL_H_
#else
#define KV_BLOCK_WEIGHTS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/int8_codes-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/lane_sums-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 8-bit weights of signed codes, whose scales have no sign.
template <class F, int kRows>
constexpr bool kUnsignedWeights = kRows == 4 && F::kSignBits != 0;
template <class F, int kRows>
constexpr float kLargestBlockWeight = kRows == 2                   ? kLargestWeightCode
                                      : kUnsignedWeights<F, kRows> ? 255.0f
                                                                   : 127.0f;

// The weights of blocks first … first + 3 are probabilities p [kTileRows] of one query times scales.
struct WeightBlocks {
  const float *p, *scale;
  WeightBlocks(const float* probabilities, const ScaleColumns& scales, int first)
      : p(probabilities), scale(scales.at(first, 0)) {}
  template <class DF>
  HWY_INLINE hn::Vec<DF> weight(DF df, int block, int row) const {
    return hn::Mul(hn::Load(df, p + row), hn::Load(df, scale + block * kTileRows + row));
  }
};

// Their steps, and what makes codes of them.
template <class F, int kRows>
HWY_INLINE void find_steps(const WeightBlocks& blocks, float* step, float* inverse) {
  const hn::CappedTag<float, 16> df;
  const hn::CappedTag<float, 4> four;
  constexpr float kLargest = kLargestBlockWeight<F, kRows>;
  hn::Vec<decltype(df)> top[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (int row = 0; row < kTileRows; row += static_cast<int>(hn::Lanes(df))) {
    for (int b = 0; b < 4; ++b) {
      const auto weight = blocks.weight(df, b, row);
      top[b] = hn::Max(top[b], kUnsignedWeights<F, kRows> ? weight : hn::Abs(weight));
    }
  }
  const auto largest = across_lanes(df, top[0], top[1], top[2], top[3], MaxOf());
  const auto positive = hn::Gt(largest, hn::Zero(four));
  hn::StoreU(hn::IfThenElseZero(positive, hn::Div(hn::Set(four, kLargest), largest)), four, inverse);
  hn::StoreU(hn::Mul(largest, hn::Set(four, 1.0f / kLargest)), four, step);
}

// Their words, and starts.
template <class F, int kRows>
HWY_INLINE void code_four_blocks(const WeightBlocks& blocks, const float* inverse, int32_t* words,
                                 int32_t* start) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  using Weights = BlockWeights<kRows>;
  const int lanes = static_cast<int>(hn::Lanes(df));
  hn::Vec<decltype(di)> sum[4] = {hn::Zero(di), hn::Zero(di), hn::Zero(di), hn::Zero(di)};
  for (int i = 0; i < Weights::kWords; i += lanes) {
    const int row = Weights::row(i);
    hn::Vec<decltype(di)> word[4];
    for (int b = 0; b < 4; ++b) {
      const auto code = [&](int k) KV_INLINE {
        return rounded_bits(df, blocks.weight(df, b, row + k * Weights::kApart), hn::Set(df, inverse[b]));
      };
      if constexpr (kRows == 2) {
        word[b] = pair_up(di, code(0), code(1));
        sum[b] = add_products(di, hn::BitCast(d16, word[b]), hn::Set(d16, 1), sum[b]);
      } else {
        word[b] = code(3);
        for (int k = 2; k >= 0; --k)
          word[b] = hn::OrAnd(hn::ShiftLeft<8>(word[b]), code(k), hn::Set(di, 0xff));
        if constexpr (!kUnsignedWeights<F, kRows>)
          sum[b] = add_quad_products(di, hn::Set(di, 0x01010101), word[b], sum[b]);
      }
    }
    hn::StoreInterleaved4(word[0], word[1], word[2], word[3], di, words + 4 * i);
  }
  if constexpr (!kUnsignedWeights<F, kRows>) {
    const hn::CappedTag<int32_t, 4> sums;
    const auto codes = sums_of_four(di, sum[0], sum[1], sum[2], sum[3]);
    hn::StoreU(hn::Mul(codes, hn::Set(sums, -kMiddle<F::kBits>)), sums, start);
  }
}

// Probabilities p [kQueries, count], kScoreStride apart, to which zeros are added, times scales -> weights. Steps of all
// queries come first: the chain of answers that one waits for overlaps with the others'.
template <class F, int kQueries, int kRows>
HWY_INLINE void code_block_weights(const float* p, const ScaleColumns& scales, int count, int blocks,
                                   BlockWeights<kRows>& out) {
  const hn::CappedTag<float, 16> df;
  HWY_ALIGN float rows[kQueries][kTileRows], inverse[kQueries][4];
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kTileRows; i += static_cast<int>(hn::Lanes(df)))
      hn::Store(load_valid(df, p + r * kScoreStride, i, count), df, rows[r] + i);
  }
  for (int b = 0; b < blocks; b += 4) {
    for (int r = 0; r < kQueries; ++r)
      find_steps<F, kRows>(WeightBlocks(rows[r], scales, b), out.step + r * kMaxBlocks + b, inverse[r]);
    for (int r = 0; r < kQueries; ++r) {
      code_four_blocks<F, kRows>(WeightBlocks(rows[r], scales, b), inverse[r],
                                 out.word + r * out.kStride + b * out.kWords, out.start + r * kMaxBlocks + b);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
