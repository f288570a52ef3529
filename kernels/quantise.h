// How the quantised formats pick scales and codes, number by number: what encoding.h describes, written once
// for the CPU's loops and the GPU's lanes, so that both store the same bytes. Private to kernels/.
//
// No expression here may be contracted to a fused multiply-add: both compilers are told so.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/math.h"

namespace kv {

inline constexpr int kGgmlBlock = 32;  // elements under one scale in kQ8_0 and kQ4_0
inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kNanBits = 0x7fc00000u;

// A magnitude as bits: those order like the numbers, so that a maximum has no special cases in integers.
KV_HD inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

// The nearest integer, halves to even, of |x| <= 2^22: the sum's last place is 1. Becomes vector code, unlike
// lrint.
KV_HD inline int32_t nearest_even(float x) {
  constexpr float kAlign = 0x1.8p23f;
  return std::bit_cast<int32_t>(x + kAlign) - std::bit_cast<int32_t>(kAlign);
}

// Comparisons are written so that NaN becomes `low`.
KV_HD inline float clamp_number(float x, float low, float high) {
  x = x > low ? x : low;
  return x < high ? x : high;
}

// Of a scale that may be 0, or NaN: then 0.
KV_HD inline float inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// ---- FP8 ----

// The largest row that both formats can scale to and back without overflow, as bits: 1.75 * 2^127.
inline constexpr uint32_t kLargestFp8Row = 0x7f600000u;

// Of a row: the smallest power of two under which its largest finite magnitude, rounded to FP8's mantissa, is
// in range. Looking at it rounded makes the choice the same for a row and for what is decoded of it. NaN for
// a row that holds one.
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

// ---- ggml's blocks ----

inline constexpr float kLargestHalf = 65504.0f;

// A block's scale as stored, and the factor that turns its elements into codes.
struct BlockScale {
  uint16_t stored;
  float inverse;
};

// Where ggml's scale would overflow f16, or its inverse f32, ours stays finite.
KV_HD inline BlockScale block_scale(float d, bool finite) {
  if (!finite) return {f32_to_f16(std::bit_cast<float>(kNanBits)), 0.0f};
  d = clamp_number(d, -kLargestHalf, kLargestHalf);
  const bool tiny = magnitude_bits(d) < 0x00800000u;  // so small a scale is stored as 0 anyway
  return {f32_to_f16(d), tiny ? 0.0f : 1.0f / d};
}

KV_HD inline BlockScale q8_0_scale(uint32_t largest_bits) {
  return block_scale(std::bit_cast<float>(largest_bits) / 127.0f, largest_bits < kInfinityBits);
}

// `first`: the block's first element of the largest magnitude, with its sign. ggml starts from +0, so a block
// of -0 has the sign of +0.
KV_HD inline BlockScale q4_0_scale(float first) {
  return block_scale((first + 0.0f) / -8.0f, magnitude_bits(first) < kInfinityBits);
}

// roundf(x) clamped to ±127: halves away from zero. The largest float below 1/2 keeps 0.49999997 from
// becoming 1.
KV_HD inline int8_t q8_0_code(float x, float inverse_scale) {
  x = x * inverse_scale;
  const uint32_t half = 0x3effffffu | (std::bit_cast<uint32_t>(x) & 0x80000000u);
  x = clamp_number(x + std::bit_cast<float>(half), -127.5f, 127.5f);
  return static_cast<int8_t>(static_cast<int32_t>(x));
}

KV_HD inline unsigned q4_0_code(float x, float inverse_scale) {
  return static_cast<unsigned>(static_cast<int32_t>(clamp_number(x * inverse_scale + 8.5f, 0.0f, 15.0f)));
}

// ---- uniform grids: kToken and kChannel ----

// Limits of what is stored: half the largest metadata value or less, so that max - min is finite and so is
// every product of a code and a scale.
inline constexpr float kLimitF32 = 0x1p126f;
inline constexpr float kLimitF16 = 32752.0f;
inline constexpr float kSmallestScale = 0x1p-126f;  // the smallest beside 0, so that its inverse is finite

// element = zero + code * scale, code = 0 … top.
struct Grid {
  float zero, scale;
};

KV_HD inline Grid poisoned_grid() { return {0.0f, std::bit_cast<float>(kNanBits)}; }
KV_HD inline float top_code(int bits) { return static_cast<float>((1 << bits) - 1); }

KV_HD inline uint16_t nearest_code(float x, const Grid& grid, float inverse_scale, float top) {
  return static_cast<uint16_t>(nearest_even(clamp_number((x - grid.zero) * inverse_scale, 0.0f, top)));
}

// The grid that spans [low, high], as f32 holds it. + 0.0f: a row of -0 and one of +0 are stored alike.
KV_HD inline Grid grid_f32(float low, float high, float top) {
  low = clamp_number(low, -kLimitF32, kLimitF32) + 0.0f;
  high = clamp_number(high, -kLimitF32, kLimitF32);
  if (high == low) return {low, 0.0f};
  const double step = (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(top);
  const float scale = static_cast<float>(step);
  return {low, scale > kSmallestScale ? scale : kSmallestScale};
}

// The largest f16 that is not above x, and the smallest above a non-negative one; |x| <= 65504.
KV_HD inline uint16_t half_below(float x) {
  const uint16_t h = f32_to_f16(x);
  if (f16_to_f32(h) <= x) return h;
  if ((h & 0x7fff) == 0) return 0x8001;  // below zero: the smallest negative one
  return h & 0x8000 ? static_cast<uint16_t>(h + 1) : static_cast<uint16_t>(h - 1);
}

// The grid that spans [low, high], as f16 holds it: from the f16 at or below `low`, with the nearest scale,
// or the one above if the nearest falls short of `high` by more than half a step (only where the scale is
// subnormal).
KV_HD inline Grid grid_f16(float low, float high, float top) {
  low = clamp_number(low, -kLimitF16, kLimitF16) + 0.0f;
  high = clamp_number(high, -kLimitF16, kLimitF16);
  const float zero = f16_to_f32(half_below(low));
  if (high == zero) return {zero, 0.0f};
  const float span = high - zero;
  uint16_t scale = f32_to_f16(span / top);
  if (span > f16_to_f32(scale) * (top + 0.5f)) ++scale;
  return {zero, f16_to_f32(scale)};
}

// kToken's grid, and kChannel's above 8 bits.
KV_HD inline Grid affine_grid(float low, float high, uint32_t largest_bits, int bits) {
  return largest_bits < kInfinityBits ? grid_f32(low, high, top_code(bits)) : poisoned_grid();
}

// kChannel's: f16 up to 8 bits, as KIVI has it.
KV_HD inline bool half_meta(int bits) { return bits <= 8; }
KV_HD inline Grid channel_grid(float low, float high, uint32_t largest_bits, int bits) {
  if (!half_meta(bits)) return affine_grid(low, high, largest_bits, bits);
  return largest_bits < kInfinityBits ? grid_f16(low, high, top_code(bits)) : poisoned_grid();
}

// kToken without zero points: code = middle + round(x / scale), middle = 2^(bits-1); code 0 is not used.
KV_HD inline float symmetric_scale(uint32_t largest_bits, int bits) {
  if (largest_bits >= kInfinityBits) return std::bit_cast<float>(kNanBits);
  const float magnitude = clamp_number(std::bit_cast<float>(largest_bits), 0.0f, kLimitF32);
  if (magnitude == 0.0f) return 0.0f;
  const float scale = magnitude / static_cast<float>((1 << (bits - 1)) - 1);
  return scale > kSmallestScale ? scale : kSmallestScale;
}

KV_HD inline uint16_t symmetric_code(float x, float inverse_scale, int bits) {
  const int middle = 1 << (bits - 1);
  const float top = static_cast<float>(middle - 1);
  return static_cast<uint16_t>(nearest_even(clamp_number(x * inverse_scale, -top, top)) + middle);
}

}  // namespace kv
