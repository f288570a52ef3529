// Soft-capping of scores, cap * tanh(score / cap), as Gemma 2 has it (arXiv:2408.00118, section 2). Private to kernels/cpu;
// compiled once a target.
#if defined(KV_SCORE_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_SCORE_CAP_INL_H_
#undef KV_SCORE_CAP_INL_H_
#else
#define KV_SCORE_CAP_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tanh within 4 * 2^-24 of it, relatively. Near 0, where 1 - e^-2x would cancel, it is a quotient of polynomials: its
// continued fraction, cut off. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of(D d, V x) {
  const V y = hn::Abs(x), square = hn::Mul(y, y);
  V over = hn::Add(square, hn::Set(d, 105.0f));
  over = hn::Mul(y, hn::MulAdd(over, square, hn::Set(d, 945.0f)));
  V under = hn::MulAdd(hn::Set(d, 15.0f), square, hn::Set(d, 420.0f));
  under = hn::MulAdd(under, square, hn::Set(d, 945.0f));
  const V e = exp_of_negative(d, hn::Mul(y, hn::Set(d, -2.0f))), one = hn::Set(d, 1.0f);
  const auto small = hn::Lt(y, hn::Set(d, 0.5f));
  const V size =
      hn::Div(hn::IfThenElse(small, over, hn::Sub(one, e)), hn::IfThenElse(small, under, hn::Add(one, e)));
  return hn::CopySign(size, x);
}

// scores [count] -> cap * tanh(score * scale / cap). `count` is a multiple of the lanes. Not inlined, so that
// loops without a cap compile as before.
inline HWY_NOINLINE void cap_scores(float* scores, int count, float scale, float cap) {
  const hn::ScalableTag<float> d;
  const auto to_unit = hn::Set(d, scale / cap), from_unit = hn::Set(d, cap);
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(d))) {
    const auto x = hn::Mul(hn::LoadU(d, scores + i), to_unit);
    hn::StoreU(hn::Mul(tanh_of(d, x), from_unit), d, scores + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
