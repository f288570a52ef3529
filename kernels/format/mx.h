// mxfp8, mxfp4: OCP's microscaling formats (OCP Microscaling Formats (MX) Specification v1.0, 2023), 32 elements under
// one power of two.
//
//   data  D FP8, or D E2M1 (bits.h)    meta  D/32 E8M0    element i  element * 2^(E8M0 - 127)
//
// The scale is the largest power of two that is not above the block's largest magnitude, divided by that of the
// element's format: 2^(floor(log2(amax)) - emax), cut off at 2^-127 (section 6.3). Elements are rounded to nearest even and
// saturate, as amax itself may do: 7 of an E2M1 block becomes 6. Zeros have the smallest scale. A NaN or an infinity makes
// the scale NaN, and with it the block, so that the damage shows; the specification leaves that to the implementation.
#pragma once

#include "kernels/format/bits.h"
#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/e2m1.h"
#include "kernels/math.h"

namespace kv {

inline constexpr int kMxBlock = 32;  // elements under one scale
inline constexpr uint8_t kE8m0Nan = 0xff;

// largest_bits: of the block's magnitudes. An f32's exponent field has E8M0's bias; subnormals' 0 is cut off anyway.
KV_HD inline uint8_t e8m0_scale(uint32_t largest_bits, int top_exponent) {
  if (largest_bits >= kInfinityBits) return kE8m0Nan;
  const int code = static_cast<int>(largest_bits >> 23) - top_exponent;
  return static_cast<uint8_t>(code < 0 ? 0 : code);
}

KV_HD constexpr float e8m0_to_f32(uint8_t code) {
  if (code == kE8m0Nan) return std::bit_cast<float>(kNanBits);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : uint32_t{code} << 23);  // 2^-127 is subnormal
}

// 1 / scale, exact; of NaN 0.
KV_HD inline float e8m0_inverse(uint8_t code) {
  return code == kE8m0Nan ? 0.0f : std::bit_cast<float>((254u - code) << 23);
}

template <Fp8 F>
struct MxFp8Element {
  static constexpr int kBits = 8;
  static constexpr Format kFormat = F.mantissa_bits == 3 ? Format::kMxFp8E4M3 : Format::kMxFp8E5M2;
  static constexpr int kTopExponent = (F.largest >> F.mantissa_bits) - F.bias;
  static constexpr const char* kName = F.mantissa_bits == 3 ? "mxfp8e4m3" : "mxfp8e5m2";
  static uint16_t encode(float x) { return f32_to_fp8<F>(x); }
  static float decode(uint16_t code) { return fp8_to_f32<F>(static_cast<uint8_t>(code)); }
};

struct MxFp4Element {
  static constexpr int kBits = 4;
  static constexpr Format kFormat = Format::kMxFp4;
  static constexpr int kTopExponent = kE2m1TopExponent;
  static constexpr const char* kName = "mxfp4";
  static uint16_t encode(float x) { return static_cast<uint16_t>(f32_to_e2m1(x)); }
  static float decode(uint16_t code) { return e2m1_to_f32(code); }
};

template <class Element>
struct MxFormat : BlockRows<MxFormat<Element>, Element::kFormat, Element::kBits, kMxBlock> {
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr double kAttentionError = kFloatAttentionError;
  static constexpr int64_t meta_bytes(const Encoding&, int head_dim) { return head_dim / kMxBlock; }
  static std::string name(const Encoding&) { return Element::kName; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

using MxFp8E4M3Format = MxFormat<MxFp8Element<kE4M3>>;
using MxFp8E5M2Format = MxFormat<MxFp8Element<kE5M2>>;
using MxFp4Format = MxFormat<MxFp4Element>;

}  // namespace kv
