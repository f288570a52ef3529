// Sums and extremes across lanes, four vectors at a time. Private to kernels/cpu; compiled once a target.
#if defined(KV_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_LANE_SUMS_INL_H_
#undef KV_LANE_SUMS_INL_H_
#else
#define KV_LANE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct SumOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct MaxOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
struct MinOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};

// Joins the 128-bit blocks of v, lane by lane.
template <class D, class V, class Join>
HWY_INLINE auto join_blocks([[maybe_unused]] D d, V v, Join join) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return join_blocks(half, join(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), join);
  }
}

// Joins, with `join`, the four 32-bit lanes of each 128-bit block of four vectors; the results of a block are
// in its four lanes.
template <class D, class V, class Join>
HWY_INLINE V join_four(D d, V a, V b, V c, V e, Join join) {
  const V ab = join(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = join(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<double, D> pairs;
  const auto x = hn::BitCast(pairs, ab), y = hn::BitCast(pairs, ce);
  const V low = hn::BitCast(d, hn::InterleaveLower(pairs, x, y));
  const V high = hn::BitCast(d, hn::InterleaveUpper(pairs, x, y));
  return join(low, high);
}

// Their sums.
template <class D, class V>
HWY_INLINE V sums_in_blocks(D d, V a, V b, V c, V e) {
  return join_four(d, a, b, c, e, SumOf());
}

// Each of four vectors to one lane, by the same tree, whichever of the four it is.
template <class D, class V, class Join>
HWY_INLINE auto across_lanes(D d, V a, V b, V c, V e, Join join) {
  return join_blocks(d, join_four(d, a, b, c, e, join), join);
}
template <class D, class V>
HWY_INLINE auto sums_of_four(D d, V a, V b, V c, V e) {
  return across_lanes(d, a, b, c, e, SumOf());
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
