// The vector encoders, compiled once for each instruction set and picked at run time.
#include "kernels/cpu/ask_for.h"
#include "kernels/cpu/targets.h"
#include "kernels/formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc).
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/encode_blocks-inl.h"
#include "kernels/cpu/encode_channels-inl.h"
#include "kernels/cpu/encode_rows-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

// Each encoder returns false, having stored nothing of use, where an element is not finite or beyond what
// the format can hold. Those need care with every comparison, are rare, and are left to the scalar encoder;
// for the others a row's own scale keeps its codes in range, and most of the clamping falls away.
template <class D, class N>
HWY_INLINE bool encode_unit(D d, const Encoding& e, N n, const UnitJob& job) {
  switch (e.format) {
    case Format::kF32:
      copy_row(n, job);
      return true;
    case Format::kF16:
      encode_f16_row(d, n, job);
      return true;
    case Format::kBf16:
      encode_bf16_row(d, n, job);
      return true;
    case Format::kToken:
      return encode_token_row(d, e, n, job);
    case Format::kChannel:
      return encode_channel_unit(d, e, n, job);
    default:
      return false;
  }
}

template <class D, class N>
void encode_one_by_one(D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  const int64_t bytes = unit_data_bytes(e, n);
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (e.group == 1 && i + kUnitsAhead < jobs.size()) ask_for(jobs[i + kUnitsAhead], bytes);
    if (!encode_unit(d, e, n, jobs[i])) encode_unit_scalar(e, n, jobs[i]);
  }
}

template <class D, class N>
HWY_INLINE bool encode_rows(D d, Format format, N n, const RowJobs& jobs) {
  if (format == Format::kFp8E4M3) return encode_fp8_rows<kE4M3>(d, n, jobs);
  if (format == Format::kFp8E5M2) return encode_fp8_rows<kE5M2>(d, n, jobs);
  return encode_ggml_rows(d, format, n, jobs);
}

template <class D, class N>
void encode_by_fours(D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  const int64_t bytes = unit_data_bytes(e, n);
  while (!jobs.empty()) {
    const auto now = jobs.first(std::min<size_t>(kFour, jobs.size()));
    jobs = jobs.subspan(now.size());
    const RowJobs rows(now, jobs.first(std::min<size_t>(kFour, jobs.size())), bytes);
    if (encode_rows(d, e.format, n, rows)) continue;
    for (const UnitJob& job : now) encode_unit_scalar(e, n, job);
  }
}

template <class D, class N>
void encode_all(D d, const Encoding& e, N n, std::span<const UnitJob> jobs) {
  switch (e.format) {
    case Format::kFp8E4M3:
    case Format::kFp8E5M2:
    case Format::kQ8_0:
    case Format::kQ4_0:
      return encode_by_fours(d, e, n, jobs);
    default:
      return encode_one_by_one(d, e, n, jobs);
  }
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
