// Scalar reference code: number formats and the online softmax, with the same bits wherever they are
// computed.
//
// Everything here is plain code without tables or intrinsics, so that it can serve as the oracle of the
// vector paths and compile for a device unchanged.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace kv {

// IEEE binary16 -> binary32, exact. Subnormals, infinities and NaN included.
KV_HD inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// binary32 -> binary16, rounding to nearest even; overflow gives infinity, NaN stays a (quiet) NaN.
KV_HD inline uint16_t f32_to_f16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and up round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: the sum with 0.5 aligns and rounds the subnormal
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - 0x3f000000u);
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

KV_HD inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(uint32_t{h} << 16); }

// binary32 -> bfloat16, rounding to nearest even; NaN stays a (quiet) NaN.
KV_HD inline uint16_t f32_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// True if a is the smaller score. NaN is larger than every number, so that the smallest of many does not
// depend on the order of comparisons.
KV_HD inline bool is_lighter(float a, float b) { return a < b || (b != b && a == a); }

// OCP FP8 (Micikevicius et al. 2022, arXiv:2209.05433): kE4M3 has no infinity and one NaN a sign, kE5M2 is
// the upper byte of a binary16.
struct Fp8 {
  int mantissa_bits;
  int bias;
  uint8_t largest;  // code of the largest finite value: 448 or 57344
  uint8_t nan;
};
inline constexpr Fp8 kE4M3{3, 7, 0x7e, 0x7f};
inline constexpr Fp8 kE5M2{2, 15, 0x7b, 0x7f};

// binary32 -> FP8, rounding to nearest even; what is too large, infinity included, gives the largest finite
// value.
template <Fp8 F>
KV_HD constexpr uint8_t f32_to_fp8(float f) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - F.bias) << 23;
  // A number whose last place is the step of the subnormals: adding it aligns and rounds them.
  constexpr uint32_t kAlign = static_cast<uint32_t>(127 + 23 + 1 - F.bias - F.mantissa_bits) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float aligned = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAlign);
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - kAlign;
  const uint32_t odd = (magnitude >> kShift) & 1u;
  const uint32_t normal = (magnitude - kRebias + (1u << (kShift - 1)) - 1u + odd) >> kShift;
  uint32_t code = magnitude < kRebias + (1u << 23) ? subnormal : normal;
  if (code > F.largest) code = F.largest;
  if (magnitude > 0x7f800000u) code = F.nan;
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

// FP8 -> binary32, exact.
template <Fp8 F>
KV_HD constexpr float fp8_to_f32(uint8_t code) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - F.bias) << 23;
  constexpr uint32_t kOne = 1u << 23;  // one step of the exponent
  const uint32_t shifted = static_cast<uint32_t>(code & 0x7f) << kShift;
  const float normal = std::bit_cast<float>(shifted + kRebias);
  const float subnormal =
      std::bit_cast<float>(shifted + kRebias + kOne) - std::bit_cast<float>(kRebias + kOne);
  uint32_t bits = std::bit_cast<uint32_t>(shifted < kOne ? subnormal : normal);
  const uint32_t top = static_cast<uint32_t>(F.largest) << kShift;
  if (shifted > top) bits = 0x7f800000u | (F.mantissa_bits == 2 ? shifted & (kOne - 1) : 0x400000u);
  return std::bit_cast<float>(bits | (static_cast<uint32_t>(code & 0x80) << 24));
}

// The state of a softmax-weighted sum over some rows: `max` of the scores seen, `sum` of exp(score - max).
// The weighted sum itself is scaled the same way. No rows: max = -inf, sum = 0. (Milakov & Gimelshein 2018,
// arXiv:1805.02867.)
struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0.0f;
};

// The factors that rescale two states' sums to one maximum. Both are 0 for a side without rows.
struct MergeFactors {
  float a = 0.0f, b = 0.0f;
};

KV_HD inline MergeFactors merge(SoftmaxState& into, const SoftmaxState& other) {
  const float max = into.max > other.max ? into.max : other.max;
  MergeFactors f;
  if (into.sum > 0.0f) f.a = std::exp(into.max - max);
  if (other.sum > 0.0f) f.b = std::exp(other.max - max);
  into.sum = into.sum * f.a + other.sum * f.b;
  into.max = max;
  return f;
}

}  // namespace kv
