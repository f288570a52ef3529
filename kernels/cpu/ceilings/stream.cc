#include "kernels/cpu/ceilings/stream.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
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

uint32_t sum_of_lanes(hn::Vec<hn::ScalableTag<uint32_t>> v) {
  const hn::ScalableTag<uint32_t> d;
  // Not SumOfLanes: GCC's AVX-512 headers add the lanes as signed numbers, which may not overflow.
  HWY_ALIGN uint32_t sums[hn::MaxLanes(d)];
  hn::Store(v, d, sums);
  return std::accumulate(sums, sums + hn::Lanes(d), uint32_t{0});
}

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
  return sum_of_lanes(hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

// The little-endian words from `data` on, the last one filled up with zeros.
uint32_t sum_rest(const std::byte* data, const std::byte* end) {
  uint32_t sum = 0;
  for (; data < end; data += sizeof(uint32_t)) {
    uint32_t word = 0;
    std::memcpy(&word, data, std::min(sizeof word, static_cast<size_t>(end - data)));
    sum += word;
  }
  return sum;
}

// Four vectors at a time, `apart` bytes apart, of `rounds` that are `step` bytes apart; asks for lines kAhead bytes later.
template <size_t kAhead>
HWY_INLINE uint32_t sum_rounds(const std::byte* data, size_t rounds, size_t step, size_t apart) {
  const hn::ScalableTag<uint32_t> d;
  const auto load = [&](const std::byte* p) { return hn::LoadU(d, reinterpret_cast<const uint32_t*>(p)); };
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (const std::byte *p = data, *const end = data + rounds * step; p < end; p += step) {
    for (size_t line = 0; kAhead > 0 && line < step; line += 64) __builtin_prefetch(p + line + kAhead);
    a = hn::Add(a, load(p));
    b = hn::Add(b, load(p + apart));
    c = hn::Add(c, load(p + 2 * apart));
    e = hn::Add(e, load(p + 3 * apart));
  }
  return sum_of_lanes(hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

uint64_t sum_ranges(std::span<const ByteRange> ranges, ReadOrder order) {
  const hn::ScalableTag<uint32_t> d;
  const size_t vector = hn::Lanes(d) * sizeof(uint32_t);
  uint64_t sum = 0;
  for (const ByteRange& range : ranges) {
    const size_t rounds = range.bytes / (4 * vector);
    const uint32_t whole = order == ReadOrder::kQuarters
                               ? sum_rounds<0>(range.data, rounds, vector, rounds * vector)
                               : sum_rounds<2048>(range.data, rounds, 4 * vector, vector);
    sum += whole + sum_rest(range.data + 4 * rounds * vector, range.data + range.bytes);
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(sum_words);
HWY_EXPORT(sum_ranges);

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

std::vector<std::span<const ByteRange>> share_out(std::span<const ByteRange> ranges, size_t threads) {
  size_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.bytes;
  std::vector<std::span<const ByteRange>> parts(threads);
  size_t before = 0, begin = 0, end = 0;
  for (size_t part = 0; part < threads; ++part, begin = end) {
    while (end < ranges.size() && before * threads < bytes * (part + 1)) before += ranges[end++].bytes;
    parts[part] = ranges.subspan(begin, end - begin);
  }
  return parts;
}

uint64_t read_ranges(std::span<const std::span<const ByteRange>> parts, ReadOrder order) {
  uint64_t sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static, 1)
  for (size_t part = 0; part < parts.size(); ++part)
    sum += HWY_DYNAMIC_DISPATCH(sum_ranges)(parts[part], order);
  return sum;
}

}  // namespace kv::cpu
#endif
