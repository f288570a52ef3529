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
bool encode(D d, const Encoding& e, int n, const float* rows, std::byte* data, std::byte* meta) {
  switch (e.format) {
    case Format::kF32:
    case Format::kF16:
      return false;
    case Format::kBf16:
      return encode_bf16_row(d, n, rows, data);
    case Format::kFp8E4M3:
      return encode_fp8_row<kE4M3>(d, n, rows, data, meta);
    case Format::kFp8E5M2:
      return encode_fp8_row<kE5M2>(d, n, rows, data, meta);
    case Format::kQ8_0:
      return encode_q8_0_row(d, n, rows, data, meta);
    case Format::kQ4_0:
      return encode_q4_0_row(d, n, rows, data, meta);
    case Format::kToken:
      return e.affine ? encode_affine_row(d, e.bits, n, rows, data, meta)
                      : encode_symmetric_row(d, e.bits, n, rows, data, meta);
    case Format::kChannel:
      return encode_channel_unit(d, e, n, rows, data, meta);
  }
  return false;
}

bool encode_any(const Encoding& e, int n, const float* rows, std::byte* data, std::byte* meta) {
  const hn::CappedTag<float, 16> full;
  if (n % lanes_of(full) == 0) return encode(full, e, n, rows, data, meta);
  return encode(hn::CappedTag<float, 8>(), e, n, rows, data, meta);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#else
namespace kv::N_SCALAR {
bool encode_any(const Encoding&, int, const float*, std::byte*, std::byte*) { return false; }
}  // namespace kv::N_SCALAR
#endif

#if HWY_ONCE
namespace kv {
HWY_EXPORT(encode_any);
bool encode_unit_simd(const Encoding& encoding, int head_dim, const float* rows, std::byte* data,
                      std::byte* meta) {
  return HWY_DYNAMIC_DISPATCH(encode_any)(encoding, head_dim, rows, data, meta);
}
}  // namespace kv
#endif
