// f32 to 16-bit floats in integer arithmetic, lane by lane what math.h does: for targets whose hardware has
// no such conversion or rounds it otherwise. Private to kernels/cpu; compiled once a target.
#if defined(KV_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_HALF_INL_H_
#undef KV_HALF_INL_H_
#else
#define KV_HALF_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Results stand in the low halves of 32-bit lanes.
template <class D>
using Bits = hn::RebindToSigned<D>;

// f32_to_f16.
template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> half_bits(D d, V x) {
  const Bits<D> di;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Rebind<hwy::float16_t, D> d16;  // this hardware rounds to nearest even
  return hn::PromoteTo(di, hn::BitCast(hn::Rebind<uint16_t, D>(), hn::DemoteTo(d16, x)));
#else
  const auto bits = hn::BitCast(di, x);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(di, half));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff - 0x38000000)), odd));
  auto h = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
  h = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477fefff)), hn::Set(di, 0x7c00), h);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff)), hn::Set(di, 0x7e00));
  h = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), nan, h);
  return hn::Or(h, sign);
#endif
}

// f16_to_f32, of finite numbers.
template <class D, class V>
HWY_INLINE hn::Vec<D> finite_half(D d, V h) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const auto narrow = hn::DemoteTo(hn::Rebind<uint16_t, D>(), h);
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), narrow));
#else
  const Bits<D> di;
  const auto magnitude = hn::And(h, hn::Set(di, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(di, 0x8000)));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(di, 112 << 23));
  const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
  const auto is_normal = hn::Gt(magnitude, hn::Set(di, 0x3ff));
  return hn::BitCast(d, hn::Or(hn::IfThenElse(is_normal, normal, subnormal), sign));
#endif
}

// f16_to_f32 of stored bits. Without hardware for it, Highway takes infinity and NaN for numbers.
template <class D, class V>
HWY_INLINE hn::Vec<D> widen_half(D d, V bits) {
  const auto wide = hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#if HWY_TARGET == HWY_SSE4
  const Bits<D> di;
  const auto exponent =
      hn::And(hn::PromoteTo(di, hn::BitCast(hn::Rebind<uint16_t, D>(), bits)), hn::Set(di, 0x7c00));
  const auto all_ones = hn::Or(hn::BitCast(di, wide), hn::Set(di, 0x7f800000));
  return hn::BitCast(d,
                     hn::IfThenElse(hn::Eq(exponent, hn::Set(di, 0x7c00)), all_ones, hn::BitCast(di, wide)));
#else
  return wide;
#endif
}

// f32_to_bf16.
template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> bf16_bits(D /*d*/, V x) {
  const Bits<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu)));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
  return hn::IfThenElse(is_nan, hn::BitCast(di, nan), hn::BitCast(di, rounded));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
