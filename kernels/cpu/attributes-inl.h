// Highway's attributes, with VNNI where a machine with AVX3_DL's other instructions has it too. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_ATTRIBUTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ATTRIBUTES_INL_H_
#undef KV_ATTRIBUTES_INL_H_
#else
#define KV_ATTRIBUTES_INL_H_
#endif

#include <hwy/highway.h>

// Clang gives a namespace's attributes to its functions, but not to the lambdas in them.
#undef KV_BEFORE_NAMESPACE
#undef KV_ATTR
#if HWY_TARGET == HWY_AVX3_DL
#define KV_BEFORE_NAMESPACE() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni") static_assert(true, "for the semicolon")
#define KV_ATTR __attribute__((target(HWY_TARGET_STR ",avx512vnni")))
#else
#define KV_BEFORE_NAMESPACE() HWY_BEFORE_NAMESPACE()
#define KV_ATTR HWY_ATTR
#endif

// For lambdas in inner loops: GCC leaves those that are called more than once out of line, and what they
// capture in memory.
#undef KV_INLINE
#define KV_INLINE KV_ATTR __attribute__((always_inline))

#endif
