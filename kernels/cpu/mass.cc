#include "kernels/cpu/mass.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mass.cc"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void add_vector(D d, const float* scores, float max, float inverse_sum, float* mass) {
  const auto p = hn::Exp(d, hn::Sub(hn::LoadU(d, scores), hn::Set(d, max)));
  hn::StoreU(hn::MulAdd(p, hn::Set(d, inverse_sum), hn::LoadU(d, mass)), d, mass);
}

void add_mass(const float* scores, float max, float inverse_sum, int64_t rows, float* mass) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t row = 0;
  for (; row + lanes <= rows; row += lanes) add_vector(d, scores + row, max, inverse_sum, mass + row);
  if (row == rows) return;
  // The last rows pass the same instructions as all others, so that a row's bits do not depend on its place.
  float last_scores[16], last_mass[16] = {};
  std::fill_n(last_scores, 16, max);
  std::copy(scores + row, scores + rows, last_scores);
  std::copy(mass + row, mass + rows, last_mass);
  add_vector(d, last_scores, max, inverse_sum, last_mass);
  std::copy_n(last_mass, rows - row, mass + row);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {

HWY_EXPORT(add_mass);

void add_mass(const float* scores, const SoftmaxState& state, int64_t rows, float* mass) {
  if (!isa_is_scalar())
    return HWY_DYNAMIC_DISPATCH(add_mass)(scores, state.max, 1.0f / state.sum, rows, mass);
  for (int64_t row = 0; row < rows; ++row) mass[row] += std::exp(scores[row] - state.max) / state.sum;
}

}  // namespace kv
#endif
