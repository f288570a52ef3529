// Numbers with more bits than tensor cores take, as their left operand: each is the sum of kParts of 16 bits.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// The 16 rows of a matrix are 8 queries' upper parts and then their lower ones (and a third part is a matrix
// that is half empty); or, of 16 queries, there is a matrix for each part.
template <class Number, int kQueries, int kParts>
struct SplitOperand {
  static constexpr int kSlots = kQueries / 8;
  static constexpr int kMatrices = kSlots == 2 ? kParts : (kParts + 1) / 2;
  uint32_t word[kParts][kSlots][2];

  // x[slot]: of query 8 * slot + g, the lane's columns 2t, 2t + 1, 2t + 8 and 2t + 9, from `first` on.
  template <int kNumbers>
  KV_DEVICE void set(const float (&x)[kSlots][kNumbers], int first) {
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      KV_UNROLL
      for (int i = 0; i < 2; ++i) {
        float low = x[slot][first + 2 * i], high = x[slot][first + 2 * i + 1];
        KV_UNROLL
        for (int part = 0; part < kParts; ++part) {
          word[part][slot][i] = Number::pack(low, high);
          const float2 taken = Number::unpack(word[part][slot][i]);
          low -= taken.x;
          high -= taken.y;
        }
      }
    }
  }

  KV_DEVICE void multiply(const uint32_t (&b)[2], float (&c)[4]) const {
    KV_UNROLL
    for (int m = 0; m < kMatrices; ++m) {
      if constexpr (kSlots == 2) {
        Number::multiply({word[m][0][0], word[m][1][0], word[m][0][1], word[m][1][1]}, b, c);
      } else {
        const bool both = 2 * m + 1 < kParts;
        const int upper = 2 * m, lower = both ? upper + 1 : upper;
        Number::multiply({word[upper][0][0], both ? word[lower][0][0] : 0u, word[upper][0][1],
                          both ? word[lower][0][1] : 0u},
                         b, c);
      }
    }
  }
};

// Of what such a product adds up: the lane's column b, of query 8 * slot + g.
template <int kQueries>
KV_DEVICE float product(const float (&c)[4], int slot, int b) {
  return kQueries == 8 ? c[b] + c[2 + b] : c[2 * slot + b];
}

// Over the four lanes that hold the same queries.
KV_DEVICE float sum_of_quad(float x) {
  x += simt::shuffle_xor(x, 1);
  return x + simt::shuffle_xor(x, 2);
}
KV_DEVICE float largest_of_quad(float x) {
  x = simt::larger(x, simt::shuffle_xor(x, 1));
  return simt::larger(x, simt::shuffle_xor(x, 2));
}

// The power of two that brings a positive number to [1, 2); 1 for what is no normal number.
KV_DEVICE float power_to_one(float x) {
  const uint32_t exponent = std::bit_cast<uint32_t>(x) >> 23;
  return exponent == 0 || exponent >= 254 ? 1.0f : std::bit_cast<float>((254 - exponent) << 23);
}

// The logarithm of a positive number, rounded down, and no less than -100.
KV_DEVICE float rounded_log2(float x) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23) - 127;
  return static_cast<float>(exponent < -100 ? -100 : exponent);
}

}  // namespace kv::cuda
