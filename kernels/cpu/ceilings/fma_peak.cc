#include "kernels/cpu/ceilings/fma_peak.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceilings/fma_peak.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/codes-inl.h"
#endif
#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Chains that hide the latency of a multiply-add of 4 or 5 cycles at two a cycle, and fit 16 registers.
constexpr int kChains = 12;

// Returns the operations done. The factors are such that the sums settle: neither overflow nor subnormals.
double fma_loop(int64_t rounds) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  const V factor = hn::Set(d, 0.5f), term = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < rounds; ++r) {
    for (V& x : sum) x = hn::MulAdd(x, factor, term);
  }
  V all = sum[0];
  for (const V& x : sum) all = hn::Add(all, x);
  volatile float kept = hn::GetLane(all);  // else the loop is without effect
  static_cast<void>(kept);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

#if HWY_TARGET != HWY_SCALAR
// The same with the very products that attention over codes takes. Each sum is also one of its factors, or
// else products that do not change would be taken once, before the loop; what they come to does not matter.
double dot16_loop(int64_t rounds) {
  const hn::ScalableTag<int32_t> d;
  const hn::RepartitionToNarrow<decltype(d)> d16;
  using V = hn::Vec<decltype(d)>;
  V sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = hn::Set(d, i);
  const auto factor = hn::Set(d16, int16_t{3});
  for (int64_t r = 0; r < rounds; ++r) {
    for (V& x : sum) x = add_products(d, hn::BitCast(d16, x), factor, x);
  }
  V all = sum[0];
  for (const V& x : sum) all = hn::Xor(all, x);
  volatile int32_t kept = hn::GetLane(all);
  static_cast<void>(kept);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d16)) * static_cast<double>(rounds);
}
#else
double dot16_loop(int64_t) { return 0.0; }  // never picked (isa.cc)
#endif

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(fma_loop);
HWY_EXPORT(dot16_loop);

double run_fma(int64_t rounds) {
  double operations = 0;
#pragma omp parallel reduction(+ : operations)
  operations += HWY_DYNAMIC_DISPATCH(fma_loop)(rounds);
  return operations;
}

double run_dot16(int64_t rounds) {
  double operations = 0;
#pragma omp parallel reduction(+ : operations)
  operations += HWY_DYNAMIC_DISPATCH(dot16_loop)(rounds);
  return operations;
}

}  // namespace kv::cpu
#endif
