#include "kernels/cpu/attention/attention_weights.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_weights.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/cpu/attention/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void convert(D d, const float* scores, float max, float inverse_sum, float* out) {
  const auto p = exp_of_negative(d, hn::Sub(hn::LoadU(d, scores), hn::Set(d, max)));
  hn::StoreU(hn::Mul(p, hn::Set(d, inverse_sum)), d, out);
}

void probabilities(const float* scores, float max, float inverse_sum, int64_t count, float* out) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) convert(d, scores + i, max, inverse_sum, out + i);
  if (i == count) return;
  // The tail goes through the same instructions, so that bits do not depend on the place.
  float last[16];
  std::fill_n(last, 16, max);
  std::copy(scores + i, scores + count, last);
  convert(d, last, max, inverse_sum, last);
  std::copy_n(last, count - i, out + i);
}

void add_weights(const float* weights, const float* factors, int64_t rows, float* sums) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t tile = 0; tile < rows; tile += kTileRows) {
    const int64_t end = std::min<int64_t>(rows, tile + kTileRows);
    const float factor = factors[tile / kTileRows];
    int64_t row = tile;
    for (; row + lanes <= end; row += lanes) {
      const auto p = hn::Mul(hn::LoadU(d, weights + row), hn::Set(d, factor));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + row), p), d, sums + row);
    }
    for (; row < end; ++row) sums[row] += weights[row] * factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(probabilities);
HWY_EXPORT(add_weights);

void probabilities(const float* scores, const SoftmaxState& state, int64_t count, float* out) {
  if (!isa_is_scalar())
    return HWY_DYNAMIC_DISPATCH(probabilities)(scores, state.max, 1.0f / state.sum, count, out);
  for (int64_t i = 0; i < count; ++i) out[i] = std::exp(scores[i] - state.max) / state.sum;
}

void add_weights(const float* weights, const float* factors, int64_t rows, float* sums) {
  if (!isa_is_scalar()) return HWY_DYNAMIC_DISPATCH(add_weights)(weights, factors, rows, sums);
  for (int64_t row = 0; row < rows; ++row) sums[row] += weights[row] * factors[row / kTileRows];
}

}  // namespace kv::cpu
#endif
