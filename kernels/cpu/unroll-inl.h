// Loops that are written out at compile time. Private to kernels/cpu; compiled once a target.
#if defined(KV_UNROLL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_UNROLL_INL_H_
#undef KV_UNROLL_INL_H_
#else
#define KV_UNROLL_INL_H_
#endif

#include <utility>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

// Calls call(std::integral_constant<int, i>()) for i = 0 … kCount - 1.
template <int kCount, class Call>
HWY_INLINE void unroll(const Call& call) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) KV_INLINE {
    (call(std::integral_constant<int, kIndex>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
