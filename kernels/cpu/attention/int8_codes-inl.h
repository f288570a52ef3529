// Products of 8-bit codes: what int8_scores.cc and int8_values.cc share. Private to kernels/cpu; compiled once a target.
//
// Codes of rows are taken as unsigned bytes, queries and weights are signed ones, and four neighbours' products are
// summed exactly in each 32-bit lane: vpdpbusd where there is VNNI. 4-bit codes lie in two *byte planes* of a word:
//
//   plane 0   low halves: slots 0, 2, 4, 6        plane 1   high halves: slots 1, 3, 5, 7
#if defined(KV_INT8_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_INT8_CODES_INL_H_
#undef KV_INT8_CODES_INL_H_
#else
#define KV_INT8_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/block_words-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLargestInt8 = 127.0f;

template <int kBits>
constexpr int kBytePlanes = 8 / kBits;

// sum + the products of unsigned bytes of a with signed ones of b, added in fours.
template <class DI>
HWY_INLINE hn::Vec<DI> add_quad_products([[maybe_unused]] DI di, hn::Vec<DI> a, hn::Vec<DI> b,
                                         hn::Vec<DI> sum) {
#if HWY_TARGET == HWY_AVX3_DL
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
  return sum;
#else
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  const auto codes = hn::BitCast(du16, a);
  const auto even = hn::BitCast(d16, hn::And(codes, hn::Set(du16, 0xff)));
  const auto odd = hn::BitCast(d16, hn::ShiftRight<8>(codes));
  const auto signed16 = hn::BitCast(d16, b);
  sum = add_products(di, even, hn::ShiftRight<8>(hn::ShiftLeft<8>(signed16)), sum);
  return add_products(di, odd, hn::ShiftRight<8>(signed16), sum);
#endif
}

// Byte plane kPlane of words.
template <int kBits, int kPlane, class DI>
HWY_INLINE hn::Vec<DI> byte_plane(DI di, hn::Vec<DI> words) {
  if constexpr (kBits == 8) {
    return words;
  } else {
    const hn::RebindToUnsigned<DI> du;
    const auto shifted = hn::ShiftRight<kBits * kPlane>(hn::BitCast(du, words));
    return hn::BitCast(di, hn::And(shifted, hn::Set(du, 0x0f0f0f0fu)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
