// fp8: OCP FP8 (Micikevicius et al. 2022, arXiv:2209.05433), E4M3 or E5M2, under a power of two a row.
//
//   data  D FP8        meta  f32 scale        element  fp8 * scale        range  1.75 * 2^127
//
// A row is one token of one head. A cache appends token by token, so one scale per head for a whole sequence is
// not known when the first row is stored. The scale is the smallest power of two that brings the row's largest
// magnitude into FP8's range: scaling is then exact. absmax / 448, which makes the largest value a code, has 3 % less
// error over N(0,1) rows of 128 values, 11 % of 32. Infinity is stored as FP8's largest value; a NaN makes the scale NaN.
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/quantise.h"
#include "kernels/math.h"

namespace kv {

// The largest row that both kinds can scale to and back without overflow, as bits: 1.75 * 2^127.
inline constexpr uint32_t kLargestFp8Row = 0x7f600000u;

// The scale of a row: the smallest power of two under which its largest finite magnitude, rounded to FP8's
// mantissa, is in range. Rounding first makes the choice the same for a row and for its decoded values. NaN
// for a row with a NaN.
template <Fp8 F>
KV_HD float fp8_row_scale(uint32_t largest_bits) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr uint32_t kHalf = 1u << (kShift - 1);
  constexpr uint32_t kMantissa = (1u << F.mantissa_bits) - 1u;
  constexpr int kTopExponent = (F.largest >> F.mantissa_bits) - F.bias;
  if (largest_bits > kInfinityBits) return std::bit_cast<float>(kNanBits);
  const uint32_t largest = largest_bits < kLargestFp8Row ? largest_bits : kLargestFp8Row;
  const uint32_t rounded = (largest + kHalf - 1u + ((largest >> kShift) & 1u)) >> kShift;
  int exponent = static_cast<int>(rounded >> F.mantissa_bits) - 127 - kTopExponent;
  if ((rounded & kMantissa) > (F.largest & kMantissa)) ++exponent;
  if (exponent < -126) exponent = -126;
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// inverse_scale: of that scale, exact; 0 for NaN, under which all codes are 0.
template <Fp8 F>
KV_HD uint8_t fp8_row_code(float x, float inverse_scale) {
  return inverse_scale > 0.0f ? f32_to_fp8<F>(x * inverse_scale) : uint8_t{0};
}

template <Fp8 F>
struct Fp8Format : FixedWidthRows<F.mantissa_bits == 3 ? Format::kFp8E4M3 : Format::kFp8E5M2, 8> {
  static constexpr Elements kElements = Elements::kFloats;
  static constexpr Scaling kScaling = Scaling::kRow;
  static constexpr double kAttentionError = kFloatAttentionError;
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) { return 4 * word + slot; }
  KV_HD static float load_element(const std::byte* data, const std::byte* meta, int i) {
    return fp8_to_f32<F>(load<uint8_t>(data, i)) * load<float>(meta, 0);
  }
  static std::string name(const Encoding&) { return F.mantissa_bits == 3 ? "fp8e4m3" : "fp8e5m2"; }
  static constexpr int64_t meta_bytes(const Encoding&, int) { return sizeof(float); }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

using Fp8E4M3Format = Fp8Format<kE4M3>;
using Fp8E5M2Format = Fp8Format<kE5M2>;

}  // namespace kv
