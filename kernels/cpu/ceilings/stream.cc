#include "kernels/cpu/ceilings/stream.h"

#include <omp.h>

#include <algorithm>
#include <numeric>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceilings/stream.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `words` is a multiple of 4 streams x 4 vectors.
uint64_t sum_words(const uint32_t* HWY_RESTRICT p, size_t words) {
  const hn::ScalableTag<uint32_t> d;
  const size_t lanes = hn::Lanes(d), quarter = words / 4;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i < quarter; i += 2 * lanes) {
    a = hn::Add(a, hn::Load(d, p + i));
    b = hn::Add(b, hn::Load(d, p + quarter + i));
    c = hn::Add(c, hn::Load(d, p + 2 * quarter + i));
    e = hn::Add(e, hn::Load(d, p + 3 * quarter + i));
    a = hn::Add(a, hn::Load(d, p + i + lanes));
    b = hn::Add(b, hn::Load(d, p + quarter + i + lanes));
    c = hn::Add(c, hn::Load(d, p + 2 * quarter + i + lanes));
    e = hn::Add(e, hn::Load(d, p + 3 * quarter + i + lanes));
  }
  // Not SumOfLanes: GCC's AVX-512 headers add the lanes as signed numbers, which may not overflow.
  HWY_ALIGN uint32_t sums[hn::MaxLanes(d)];
  hn::Store(hn::Add(hn::Add(a, b), hn::Add(c, e)), d, sums);
  return std::accumulate(sums, sums + lanes, uint32_t{0});
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(sum_words);

uint64_t read_all(const std::byte* data, size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t pages = bytes / kPage;
  uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
  {
    const size_t threads = static_cast<size_t>(omp_get_num_threads()),
                 self = static_cast<size_t>(omp_get_thread_num());
    const size_t first = pages * self / threads, last = pages * (self + 1) / threads;
    const auto* p = reinterpret_cast<const uint32_t*>(data + first * kPage);
    if (last > first) sum += HWY_DYNAMIC_DISPATCH(sum_words)(p, (last - first) * kPage / sizeof(uint32_t));
  }
  return sum;
}

}  // namespace kv::cpu
#endif
