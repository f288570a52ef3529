// Bulk f32 <-> f16. Targets whose hardware rounds to nearest even use it; the others round in integers, and
// take the scalar path back.
#include "kernels/cpu/encode/convert.h"

#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"
#include "kernels/math.h"

#ifndef KV_CONVERT_SCALAR  // this file is compiled once a target
#define KV_CONVERT_SCALAR
namespace kv::cpu {
static void scalar_from_f16(const std::byte* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, from + 2 * i, 2);
    to[i] = f16_to_f32(h);
  }
}
}  // namespace kv::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode/convert.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

void from_f16(const std::byte* HWY_RESTRICT from, float* HWY_RESTRICT to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::ScalableTag<float> f32;
  const hn::Rebind<hwy::float16_t, decltype(f32)> f16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(f32));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::PromoteTo(f32, hn::LoadU(f16, reinterpret_cast<const hwy::float16_t*>(from + 2 * i))), f32,
               to + i);
  }
#endif
  scalar_from_f16(from + 2 * i, to + i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(from_f16);

void convert_f16_to_f32(const std::byte* from, float* to, int64_t n) {
  if (!isa_is_scalar()) return HWY_DYNAMIC_DISPATCH(from_f16)(from, to, n);
  scalar_from_f16(from, to, n);
}

}  // namespace kv::cpu
#endif
