// The vector encoders, compiled once for each instruction set and picked at run time. Levels have none: their scalar
// encoders serve.
#include "kernels/cpu/encode/encode_simd.h"
#include "kernels/cpu/encode/prefetch.h"
#include "kernels/cpu/targets.h"
#include "kernels/format/list.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode/encode_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc).
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/encode/encode_blocks-inl.h"
#include "kernels/cpu/encode/encode_channels-inl.h"
#include "kernels/cpu/encode/encode_rows-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

// Each encoder returns false, having stored nothing of use, where an element is not finite or beyond what
// the format can hold. Those need care with every comparison, are rare, and are left to the scalar encoder;
// for the others a row's own scale keeps its codes in range, and most of the clamping falls away.
template <class F, class D, class N>
HWY_INLINE bool encode_unit(F format, D d, const Encoding& e, N n, const UnitJob& job) {
  if constexpr (F::kScaling == Scaling::kNone) {
    encode_float_row(format, d, n, job);
    return true;
  } else if constexpr (F::kScaling == Scaling::kChannel) {
    return encode_channel_unit(d, e, n, job);
  } else {
    return encode_token_row(d, e, n, job);
  }
}

template <class F>
void encode_scalar(const Encoding& e, int n, const UnitJob& job) {
  F::encode(e, n, job.rows, job.data, job.meta);
}

template <class F, class D, class N>
void encode_one_by_one(F format, D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  const int64_t bytes = F::data_bytes(e, n);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (e.group == 1 && i + kPrefetchUnits < jobs.size()) prefetch(jobs[i + kPrefetchUnits], bytes);
    if (!encode_unit(format, d, e, n, jobs[i])) encode_scalar<F>(e, n, jobs[i]);
  }
}

template <class F, class D, class N>
HWY_INLINE bool encode_rows(F format, D d, N n, const RowJobs& jobs) {
  if constexpr (F::kScaling == Scaling::kBlock) {
    return encode_block_rows(d, format, n, jobs);
  } else {
    return encode_fp8_rows(format, d, n, jobs);
  }
}

template <class F, class D, class N>
void encode_by_fours(F format, D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  const int64_t bytes = F::data_bytes(e, n);
  while (!jobs.empty()) {
    const auto now = jobs.first(std::min<size_t>(kFour, jobs.size()));
    jobs = jobs.subspan(now.size());
    const RowJobs rows(now, jobs.first(std::min<size_t>(kFour, jobs.size())), bytes);
    if (encode_rows(format, d, n, rows)) continue;
    for (const UnitJob& job : now) encode_scalar<F>(e, n, job);
  }
}

// Formats of a fixed width with scales take four rows together, whose scales are then made in one vector.
template <class F>
constexpr bool kByFours = F::kBits > 0 && F::kScaling != Scaling::kNone;

template <class D, class N>
void encode_all(D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  visit_format(e.format, [&](auto format) KV_ATTR {
    using F = decltype(format);
    if constexpr (F::kElements == Elements::kLevels) {
      for (const UnitJob& job : jobs) encode_scalar<F>(e, n, job);
    } else if constexpr (kByFours<F>) {
      encode_by_fours(format, d, e, n, jobs);
    } else {
      encode_one_by_one(format, d, e, n, jobs);
    }
  });
}

void encode_units(const Encoding& e, int n, std::span<const UnitJob> jobs) {
  const hn::CappedTag<float, 16> full;
  if (n == 64) return encode_all(full, e, Length<64>(), jobs);
  if (n == 128) return encode_all(full, e, Length<128>(), jobs);
  if (n == 256) return encode_all(full, e, Length<256>(), jobs);
  if (n % lanes_of(full) == 0) return encode_all(full, e, n, jobs);
  encode_all(hn::CappedTag<float, 8>(), e, n, jobs);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#else
namespace kv::cpu::N_SCALAR {
void encode_units(const Encoding& e, int n, std::span<const UnitJob> jobs) {
  for (const UnitJob& job : jobs) {
    descriptor_of(e.format).encode(e, n, job.rows, job.data, job.meta);
  }
}
}  // namespace kv::cpu::N_SCALAR
#endif

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(encode_units);
void encode_units_simd(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs) {
  HWY_DYNAMIC_DISPATCH(encode_units)(encoding, head_dim, jobs);
}
}  // namespace kv::cpu
#endif
