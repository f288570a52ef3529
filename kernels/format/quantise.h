// Shared by the quantised formats: scales and codes, number by number, for the CPU's loops and the GPU's
// lanes, so that both store the same bytes. Private to kernels/.
//
// No expression here, nor in the formats' own files, may be contracted to a fused multiply-add: both compilers
// are told so.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace kv {

inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kNanBits = 0x7fc00000u;

// A magnitude as bits: those order like the numbers, so that a maximum has no special cases in integers.
KV_HD inline uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

// The largest magnitude of n elements, as bits. kInfinityBits or more if any is infinite or NaN.
KV_HD inline uint32_t largest_magnitude_bits(int n, const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = magnitude_bits(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

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

// The inverse of a scale, or 0 if the scale is 0 or NaN.
KV_HD inline float inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

}  // namespace kv
