// The vector encoders, compiled once for each instruction set and picked at run time.
#include "kernels/cpu/targets.h"
#include "kernels/formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc).
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/encode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE bool encode(D d, const Encoding& e, int n, const UnitJob& job) {
  switch (e.format) {
    case Format::kF32:
      std::memcpy(job.data, job.rows, sizeof(float) * static_cast<size_t>(n));
      return true;
    case Format::kF16:
      return encode_f16_row(d, n, job.rows, job.data);
    case Format::kBf16:
      return encode_bf16_row(d, n, job.rows, job.data);
    case Format::kFp8E4M3:
      return encode_fp8_row<kE4M3>(d, n, job.rows, job.data, job.meta);
    case Format::kFp8E5M2:
      return encode_fp8_row<kE5M2>(d, n, job.rows, job.data, job.meta);
    case Format::kQ8_0:
    case Format::kQ4_0:
      return encode_ggml_row(d, e.format, n, job.rows, job.data, job.meta);
    case Format::kToken:
      return e.affine ? encode_affine_row(d, e.bits, n, job.rows, job.data, job.meta)
                      : encode_symmetric_row(d, e.bits, n, job.rows, job.data, job.meta);
    case Format::kChannel:
      return encode_channel_unit(d, e, n, job.rows, job.data, job.meta);
  }
  return false;
}

// A new token's rows go to as many places, none of which is in a cache: their lines are asked for some units
// ahead, or each store would wait for its own.
HWY_INLINE void ask_for(const UnitJob& job, int64_t data_bytes) {
  for (int64_t at = 0; at < data_bytes; at += 64) __builtin_prefetch(job.data + at, 1);
  __builtin_prefetch(job.data + data_bytes - 1, 1);
  if (job.meta) __builtin_prefetch(job.meta, 1);
}

template <class D>
void encode_all(D d, const Encoding& e, int n, std::span<const UnitJob> jobs) {
  constexpr size_t kAhead = 4;
  const int64_t bytes = e.group == 1 ? unit_data_bytes(e, n) : 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (bytes && i + kAhead < jobs.size()) ask_for(jobs[i + kAhead], bytes);
    if (!encode(d, e, n, jobs[i])) encode_unit_scalar(e, n, jobs[i]);
  }
}

void encode_units(const Encoding& e, int n, std::span<const UnitJob> jobs) {
  const hn::CappedTag<float, 16> full;
  if (n % lanes_of(full) == 0) return encode_all(full, e, n, jobs);
  encode_all(hn::CappedTag<float, 8>(), e, n, jobs);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#else
namespace kv::N_SCALAR {
void encode_units(const Encoding& e, int n, std::span<const UnitJob> jobs) {
  for (const UnitJob& job : jobs) encode_unit_scalar(e, n, job);
}
}  // namespace kv::N_SCALAR
#endif

#if HWY_ONCE
namespace kv {
HWY_EXPORT(encode_units);
void encode_units_simd(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs) {
  HWY_DYNAMIC_DISPATCH(encode_units)(encoding, head_dim, jobs);
}
}  // namespace kv
#endif
