// The online softmax of one tile. Private to kernels/cpu; compiled once a target.
#if defined(KV_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_SOFTMAX_INL_H_
#undef KV_SOFTMAX_INL_H_
#else
#define KV_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/attention_task.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// scores [kTileRows] of one query -> probabilities exp(score * scale - max), 0 beyond `valid`; returns the
// factor by which what was summed before must shrink. `weights`, unless null, gets a copy of the valid ones.
// hn::Exp is within 2 units in the last place (tests/exp_test.cc holds it to that, on every instruction set).
inline float softmax_tile(float* scores, int valid, float scale, SoftmaxState& state, float* weights) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = valid; i < kTileRows; ++i) scores[i] = -INFINITY;
  const auto factor = hn::Set(d, scale);
  auto top = hn::Set(d, -INFINITY);
  for (int i = 0; i < kTileRows; i += lanes) {
    const auto score = hn::Mul(hn::Load(d, scores + i), factor);
    hn::Store(score, d, scores + i);
    top = hn::Max(top, score);
  }
  const float tile_max = hn::GetLane(hn::MaxOfLanes(d, top));
  float shrink = 1.0f;
  if (tile_max > state.max) {
    shrink = state.sum > 0.0f ? std::exp(state.max - tile_max) : 0.0f;
    state.max = tile_max;
  }
  const auto max = hn::Set(d, state.max);
  auto total = hn::Zero(d);
  for (int i = 0; i < kTileRows; i += lanes) {
    const auto x = hn::Sub(hn::Load(d, scores + i), max);
    const auto p = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));  // hn::Exp makes 0 of NaN
    hn::Store(p, d, scores + i);
    total = hn::Add(total, p);
  }
  if (weights) std::memcpy(weights, scores, sizeof(float) * static_cast<size_t>(valid));
  for (int i = valid; i < kTileRows; ++i) scores[i] = 0.0f;
  state.sum = state.sum * shrink + hn::GetLane(hn::SumOfLanes(d, total));
  return shrink;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
