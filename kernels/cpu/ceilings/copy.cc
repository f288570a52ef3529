#include "kernels/cpu/ceilings/copy.h"

#include <cstring>

#include "kernels/cpu/encode/prefetch.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceilings/copy.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies `kept` bytes and reads the rest; all of it in whole vectors but the last of those that are kept.
template <class D>
HWY_INLINE hn::Vec<D> copy_unit(D d, const uint32_t* from, size_t words, size_t kept, uint32_t* to) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= kept; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i < kept) hn::SafeCopyN(kept - i, d, from + i, to + i);
  auto a = hn::Zero(d), b = a;
  for (; i + 2 * lanes <= words; i += 2 * lanes) {
    a = hn::Add(a, hn::LoadU(d, from + i));
    b = hn::Add(b, hn::LoadU(d, from + i + lanes));
  }
  if (i < words) a = hn::Add(a, hn::LoadU(d, from + i));
  return hn::Add(a, b);
}

HWY_INLINE void copy_meta(const float* from, int64_t bytes, std::byte* to) {
  if (bytes == 0) return;
  if (bytes == 4) return static_cast<void>(std::memcpy(to, from, 4));
  if (bytes == 8) return static_cast<void>(std::memcpy(to, from, 8));
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

uint64_t copy_units(const UnitBytes& bytes, std::span<const UnitJob> jobs) {
  const hn::ScalableTag<uint32_t> d;
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const UnitJob& job = jobs[i];
    if (i + kPrefetchUnits < jobs.size()) prefetch(jobs[i + kPrefetchUnits], bytes.data);
    sum = hn::Add(
        sum, copy_unit(d, reinterpret_cast<const uint32_t*>(job.rows), static_cast<size_t>(bytes.rows / 4),
                       static_cast<size_t>(bytes.data / 4), reinterpret_cast<uint32_t*>(job.data)));
    copy_meta(job.rows, bytes.meta, job.meta);
  }
  HWY_ALIGN uint32_t sums[hn::MaxLanes(d)];
  hn::Store(sum, d, sums);
  uint64_t total = 0;
  for (const uint32_t x : sums) total += x;
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(copy_units);
uint64_t copy_units(const UnitBytes& bytes, std::span<const UnitJob> jobs) {
  return HWY_DYNAMIC_DISPATCH(copy_units)(bytes, jobs);
}
}  // namespace kv::cpu
#endif
