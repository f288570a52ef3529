// E2M1, a float of 4 bits (OCP Microscaling Formats v1.0, section 5.3.3): a sign, two bits of exponent with bias 1, one
// of mantissa, subnormals, neither infinity nor NaN. Codes 0 … 7 are the magnitudes below; 8 … 15 the same, negative.
#pragma once

#include "kernels/format/quantise.h"

namespace kv {

inline constexpr float kE2m1Magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
inline constexpr int kE2m1TopExponent = 2;  // exponent of 4 and 6

// The nearest, halves to even; what is beyond 6 becomes 6. x is not NaN.
KV_HD inline unsigned f32_to_e2m1(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float m = std::bit_cast<float>(bits & 0x7fffffffu);
  const int code =
      (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return static_cast<unsigned>(code) | (bits >> 31 << 3);
}

KV_HD inline float e2m1_to_f32(unsigned code) {
  const float magnitude = kE2m1Magnitudes[code & 7u];
  return code & 8u ? -magnitude : magnitude;
}

}  // namespace kv
