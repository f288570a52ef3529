// A tensor core's sum, by published measurements: products are exact; they and the sum so far are aligned to the largest
// exponent among them and truncated some bits below an f32's last; their sum is truncated to an f32. Nothing is rounded to
// nearest, so long sums drift towards zero. A subnormal operand counts with the exponent of the least normal number, so the
// zeros at its top cost bits: an H200 showed it (results/h200/gpu_check_first).
//
// Ampere is modelled, the coarsest of the supported GPUs: 8 products at once, 24 bits behind the point of the largest (Hopper:
// 16 and 25). Fasi, Higham, Mikaitis and Pranesh 2021 (doi:10.7717/peerj-cs.330) measured V100, T4 and A100; Khattak and Mikaitis
// 2025 (arXiv:2512.07004) A100 and H100; also Xie et al. 2025 (arXiv:2511.10909).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace kv::simt {

inline constexpr int kProductsAtOnce = 8, kFractionBits = 24;

inline int exponent_of(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xffu) - 127; }
inline double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

// The exponents of the least normal numbers.
inline constexpr int kLeastHalf = -14, kLeastBfloat = -126;

// c + a[0] * b[0] + ... + a[7] * b[7], of operands whose least normal number is 2^least.
inline float add_products(const float* a, const float* b, float c, int least = kLeastHalf) {
  constexpr int kNone = -1000;
  int largest = c == 0.0f ? kNone : exponent_of(c);
  double plain = double{c};
  for (int i = 0; i < kProductsAtOnce; ++i) {
    plain += double{a[i]} * double{b[i]};
    if (a[i] == 0.0f || b[i] == 0.0f) continue;
    largest = std::max(largest, std::max(exponent_of(a[i]), least) + std::max(exponent_of(b[i]), least));
  }
  if (largest == kNone || !std::isfinite(plain)) return static_cast<float>(plain);
  const double steps = power_of_two(kFractionBits - largest);
  double sum = std::trunc(double{c} * steps);
  for (int i = 0; i < kProductsAtOnce; ++i) sum += std::trunc(double{a[i]} * double{b[i]} * steps);
  const auto bits = std::bit_cast<uint64_t>(sum / steps) & ~uint64_t{0x1fffffff};  // to an f32's 24 bits
  return static_cast<float>(std::bit_cast<double>(bits));
}

}  // namespace kv::simt
