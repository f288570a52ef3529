// Bulk f32 -> f16. Only targets whose hardware rounds to nearest even are used; the others take the scalar
// path.
#include "kernels/cpu/convert.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"
#include "kernels/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/convert.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

void to_f16(const float* HWY_RESTRICT from, uint16_t* HWY_RESTRICT to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> f32;
  const hn::Rebind<hwy::float16_t, decltype(f32)> f16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(f32));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::DemoteTo(f16, hn::LoadU(f32, from + i)), f16, reinterpret_cast<hwy::float16_t*>(to + i));
  }
#endif
  for (; i < n; ++i) to[i] = f32_to_f16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {

HWY_EXPORT(to_f16);

void convert_f32_to_f16(const float* from, uint16_t* to, int64_t n) {
  if (!isa_is_scalar()) return HWY_DYNAMIC_DISPATCH(to_f16)(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = f32_to_f16(from[i]);
}

}  // namespace kv
#endif
