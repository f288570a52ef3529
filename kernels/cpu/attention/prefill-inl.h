// The inner loops of prefill: two small matrix products and a softmax between them, for one panel of queries
// and one tile of rows. Private to kernels/cpu; compiled once a target.
//
// Tokens lie side by side in vector lanes: queries as [head_dim, kPanelTokens], scores as [rows,
// kPanelTokens], outputs as [head_dim, kPanelTokens]. Both products then multiply vectors of tokens by single
// numbers of K and V, which are read where they lie: neither is packed or transposed, and only the queries
// and outputs are, once each. And a softmax over rows needs no sum across lanes.
#if defined(KV_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_PREFILL_INL_H_
#undef KV_PREFILL_INL_H_
#else
#define KV_PREFILL_INL_H_
#endif

#include <cmath>

#include <hwy/highway.h>

#include "kernels/cpu/attention/exp-inl.h"
#include "kernels/cpu/attention/prefill_task.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A product's block of sums is kBlock numbers of K or V times two vectors of tokens. It must fit the
// registers, hide the latency of two chains a cycle, and divide kTileRows and head_dim: 16 sums where there
// are 32 registers, 8 where there are 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kBlock = 8;
#else
constexpr int kBlock = 4;
#endif

using Lanes = hn::CappedTag<float, kPanelTokens / 2>;

// Calls visit(first) for every two vectors' first token of a panel.
template <class Visit>
HWY_INLINE void for_each_pair(Visit visit) {
  const int step = 2 * static_cast<int>(hn::Lanes(Lanes()));
  for (int first = 0; first < kPanelTokens; first += step) visit(first);
}

// kBlock keys -> scores [kBlock, kPanelTokens] of the two vectors of tokens that `queries` begins with.
HWY_INLINE void score_block(const float* const* keys, const float* queries, int head_dim, float* scores) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const float* key[kBlock];
  V low[kBlock], high[kBlock];
  for (int j = 0; j < kBlock; ++j) {
    key[j] = keys[j];
    low[j] = high[j] = hn::Zero(d);
  }
  for (int i = 0; i < head_dim; ++i) {
    const V a = hn::Load(d, queries + i * kPanelTokens), b = hn::Load(d, queries + i * kPanelTokens + lanes);
    for (int j = 0; j < kBlock; ++j) {
      const V k = hn::Set(d, key[j][i]);
      low[j] = hn::MulAdd(k, a, low[j]);
      high[j] = hn::MulAdd(k, b, high[j]);
    }
  }
  for (int j = 0; j < kBlock; ++j) {
    hn::Store(low[j], d, scores + j * kPanelTokens);
    hn::Store(high[j], d, scores + j * kPanelTokens + lanes);
  }
}

// `keys` [rows], padded to a multiple of kBlock with any readable rows -> scores [rows, kPanelTokens], and
// garbage in the padding's rows.
inline void score_panel(const float* const* keys, int rows, const float* queries, int head_dim,
                        float* scores) {
  for (int j = 0; j < rows; j += kBlock) {
    for_each_pair([&](int first) HWY_ATTR {
      score_block(keys + j, queries + first, head_dim, scores + j * kPanelTokens + first);
    });
  }
}

// The rows of a tile that a panel's tokens see: rows [0, common) for all tokens, and for token t also common
// … up to common + t - 1, none beyond `rows`.
struct CausalMask {
  int64_t common;
  int rows;
  int shared() const { return static_cast<int>(std::clamp<int64_t>(common, 0, rows)); }
};

// Lanes of the tokens from `first` on that see row j >= common.
HWY_INLINE auto mask_lanes(Lanes d, const CausalMask& mask, int j, int first) {
  return hn::Gt(hn::Iota(d, static_cast<float>(first)), hn::Set(d, static_cast<float>(j - mask.common)));
}

// scores [rows, kPanelTokens], in powers of two -> weights 2^(score - maximum). Brings the maximum and the
// sum up to date; `rescale` [kPanelTokens] is what earlier outputs are to be multiplied by.
inline void softmax_panel(const CausalMask& mask, float* scores, float* max, float* sum, float* rescale) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const V nothing = hn::Set(d, -INFINITY);
  for (int t = 0; t < kPanelTokens; t += static_cast<int>(hn::Lanes(d))) {
    float* column = scores + t;
    V top = hn::Load(d, max + t);
    const V before = top;
    for (int j = mask.shared(); j < mask.rows; ++j) {
      float* at = column + j * kPanelTokens;
      hn::Store(hn::IfThenElse(mask_lanes(d, mask, j, t), hn::Load(d, at), nothing), d, at);
    }
    for (int j = 0; j < mask.rows; ++j) top = hn::Max(hn::Load(d, column + j * kPanelTokens), top);
    V total = hn::Zero(d);
    for (int j = 0; j < mask.rows; ++j) {
      float* at = column + j * kPanelTokens;
      const V weight = exp2_of_negative(d, hn::Sub(hn::Load(d, at), top));
      hn::Store(weight, d, at);
      total = hn::Add(total, weight);
    }
    const V factor = exp2_of_negative(d, hn::Sub(before, top));
    hn::Store(factor, d, rescale + t);
    hn::Store(top, d, max + t);
    hn::Store(hn::MulAdd(hn::Load(d, sum + t), factor, total), d, sum + t);
  }
}

// Adds the weight of a score without a value, in powers of two, to every token's sum.
inline void add_sink(float sink, const float* max, float* sum) {
  for (int t = 0; t < kPanelTokens; ++t) sum[t] += std::exp2(sink - max[t]);
}

// kBlock channels of the outputs [kBlock, kPanelTokens] of the two vectors of tokens from `first` on: rescaled,
// and with the rows' weighted values added. A tile's values are added up by themselves first, so that a long
// sum is rounded once a tile.
HWY_INLINE void value_block(const float* const* values, int channel, const float* weights,
                            const CausalMask& mask, const float* rescale, int first, float* outputs) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V low[kBlock], high[kBlock];
  for (int i = 0; i < kBlock; ++i) low[i] = high[i] = hn::Zero(d);
  int j = 0;
  for (const int shared = mask.shared(); j < shared; ++j) {
    const float* value = values[j] + channel;
    const V a = hn::Load(d, weights + j * kPanelTokens + first);
    const V b = hn::Load(d, weights + j * kPanelTokens + first + lanes);
    for (int i = 0; i < kBlock; ++i) {
      const V v = hn::Set(d, value[i]);
      low[i] = hn::MulAdd(v, a, low[i]);
      high[i] = hn::MulAdd(v, b, high[i]);
    }
  }
  for (; j < mask.rows; ++j) {  // a row that is not seen adds nothing, even if it is NaN
    const float* value = values[j] + channel;
    const V a = hn::Load(d, weights + j * kPanelTokens + first);
    const V b = hn::Load(d, weights + j * kPanelTokens + first + lanes);
    const auto sees_a = mask_lanes(d, mask, j, first), sees_b = mask_lanes(d, mask, j, first + lanes);
    for (int i = 0; i < kBlock; ++i) {
      const V v = hn::Set(d, value[i]);
      low[i] = hn::IfThenElse(sees_a, hn::MulAdd(v, a, low[i]), low[i]);
      high[i] = hn::IfThenElse(sees_b, hn::MulAdd(v, b, high[i]), high[i]);
    }
  }
  const V factor_low = hn::Load(d, rescale + first), factor_high = hn::Load(d, rescale + first + lanes);
  for (int i = 0; i < kBlock; ++i) {
    float* out = outputs + i * kPanelTokens + first;
    hn::Store(hn::MulAdd(hn::Load(d, out), factor_low, low[i]), d, out);
    hn::Store(hn::MulAdd(hn::Load(d, out + lanes), factor_high, high[i]), d, out + lanes);
  }
}

// outputs [head_dim, kPanelTokens] from `values` [rows] under `weights` [rows, kPanelTokens].
inline void add_values_to_panel(const float* const* values, const float* weights, const CausalMask& mask,
                                const float* rescale, int head_dim, float* outputs) {
  for_each_pair([&](int first) HWY_ATTR {
    for (int channel = 0; channel < head_dim; channel += kBlock)
      value_block(values, channel, weights, mask, rescale, first, outputs + channel * kPanelTokens);
  });
}

// 4 rows of 4 numbers, `stride` apart, each times `factor` -> 4 columns.
template <class V>
HWY_INLINE void transpose_block(const float* from, int64_t stride, V factor, float* to, int64_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const V a = hn::Mul(hn::LoadU(d, from), factor), b = hn::Mul(hn::LoadU(d, from + stride), factor);
  const V c = hn::Mul(hn::LoadU(d, from + 2 * stride), factor);
  const V e = hn::Mul(hn::LoadU(d, from + 3 * stride), factor);
  const auto ab0 = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ce0 = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ab2 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce2 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab0, ce0)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab0, ce0)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab2, ce2)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab2, ce2)), d, to + 3 * to_stride);
}

// q [tokens, head_dim], times `scale` -> queries [head_dim, kPanelTokens], with zeros for missing tokens.
inline void pack_queries(const float* q, int tokens, int head_dim, float scale, float* queries) {
  if (tokens < kPanelTokens) std::fill_n(queries, int64_t{head_dim} * kPanelTokens, 0.0f);
  const auto factor = hn::Set(hn::FixedTag<float, 4>(), scale);
  int t = 0;
  for (; t + 4 <= tokens; t += 4) {
    for (int i = 0; i < head_dim; i += 4)
      transpose_block(q + t * head_dim + i, head_dim, factor, queries + i * kPanelTokens + t, kPanelTokens);
  }
  for (; t < tokens; ++t) {
    for (int i = 0; i < head_dim; ++i) queries[i * kPanelTokens + t] = q[t * head_dim + i] * scale;
  }
}

// outputs [head_dim, kPanelTokens] over their sums -> out [tokens, head_dim].
inline void unpack_outputs(const float* outputs, const float* sum, int tokens, int head_dim, float* out) {
  const hn::FixedTag<float, 4> d;
  int t = 0;
  for (; t + 4 <= tokens; t += 4) {
    const auto factor = hn::Div(hn::Set(d, 1.0f), hn::LoadU(d, sum + t));
    for (int i = 0; i < head_dim; i += 4)
      transpose_block(outputs + i * kPanelTokens + t, kPanelTokens, factor, out + t * head_dim + i, head_dim);
  }
  for (; t < tokens; ++t) {
    const float factor = 1.0f / sum[t];
    for (int i = 0; i < head_dim; ++i) out[t * head_dim + i] = outputs[i * kPanelTokens + t] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
