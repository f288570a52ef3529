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

#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// scores [kTileRows] of one query -> probabilities exp(score * scale - max), 0 beyond `valid`; returns the
// factor by which earlier sums are to be rescaled. `weights`, unless null, gets a copy of the valid ones.
inline float softmax_tile(float* scores, int valid, float scale, SoftmaxState& state, float* weights) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = valid; i < kTileRows; ++i) scores[i] = -INFINITY;
  auto top = hn::Load(d, scores);
  for (int i = lanes; i < kTileRows; i += lanes) top = hn::Max(top, hn::Load(d, scores + i));
  const float tile_max = hn::GetLane(hn::MaxOfLanes(d, top)) * scale;
  float rescale = 1.0f;
  if (tile_max > state.max) {
    rescale = state.sum > 0.0f ? std::exp(state.max - tile_max) : 0.0f;
    state.max = tile_max;
  }
  const auto factor = hn::Set(d, scale), max = hn::Set(d, state.max);
  auto total = hn::Zero(d);
  for (int i = 0; i < kTileRows; i += lanes) {
    const auto x = hn::Sub(hn::Mul(hn::Load(d, scores + i), factor), max);
    const auto p = exp_of_negative(d, x);
    hn::Store(p, d, scores + i);
    total = hn::Add(total, p);
  }
  if (weights) std::memcpy(weights, scores, sizeof(float) * static_cast<size_t>(valid));
  state.sum = state.sum * rescale + hn::GetLane(hn::SumOfLanes(d, total));
  return rescale;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
