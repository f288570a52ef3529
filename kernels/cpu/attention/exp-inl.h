// Exponentials for a softmax. Private to kernels/cpu; compiled once a target.
#if defined(KV_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_EXP_INL_H_
#undef KV_EXP_INL_H_
#else
#define KV_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 2^x for x <= 0, within 1.4 * 2^-24 of it relatively (with fused multiply-adds; 2 * 2^-24 without); 2^0
// is 1. Below 2^-126 it is 0. NaN stays NaN.
//
// x = n + f with n its nearest integer: 2^n goes into the exponent's bits, and 2^f, |f| <= 1/2, is the
// polynomial of degree 6 with the least largest relative error (2e-9, found by Remez's exchange).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_of_negative(D d, V x) {
  // Added, it pushes x's fraction out of the mantissa, and leaves n plus the exponent's bias as lowest bits.
  const V shift = hn::Set(d, 0x1.8p23f + 127.0f);
  const V shifted = hn::Add(x, shift);
  const V f = hn::Sub(x, hn::Sub(shifted, shift));
  V y = hn::Set(d, 0x1.41d334p-13f);
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.5f456ap-10f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.3b2dbcp-7f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.c6aed4p-5f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.ebfbdap-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.62e430p-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<D> du;
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Zero(d), hn::Mul(y, power));
}

// e^x for x <= 0, within 2 units in the last place, subnormals included; e^0 is 1
// (tests/kernels/cpu/exp_test.cc holds it to that on every instruction set). NaN stays NaN.
//
// As above, but x = n ln 2 + f: ln 2 comes in two parts, the first of so few bits that n times it is exact.
// So does 2^n, as 2^(n+64) and 2^-64, so that what is below 2^-126 is rounded, not lost.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_negative(D d, V x) {
  const V shift = hn::Set(d, 0x1.8p23f + 127.0f + 64.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p0f), shift);
  const V n = hn::Sub(shifted, shift);
  V f = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), x);
  f = hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), f);
  V y = hn::Set(d, 0x1.6d112cp-10f);
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.120b90p-7f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.55551ap-5f));
  y = hn::MulAdd(y, f, hn::Set(d, 0x1.5554dcp-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.5f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<D> du;
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  const V scaled = hn::Mul(hn::Mul(y, power), hn::Set(d, 0x1p-64f));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -104.0f)), hn::Zero(d), scaled);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
