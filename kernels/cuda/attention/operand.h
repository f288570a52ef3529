// The operands of a matrix product: the words and elements of encoded rows that a lane holds, and numbers of more than 16 bits
// as sums of kParts 16-bit numbers.
#pragma once

#include "kernels/cuda/attention/words.h"

namespace kv::cuda {

// A lane's words and elements of a row, with g = lane / 4 and t = lane % 4. Four lanes share 16 bytes of a row of K: lane t has
// word t. Eight lanes share 16 bytes of a row of V: lane g has half a word. simt::load_matrices delivers them so. Keys whose
// channels have scales come by two adjacent words a lane: elements of one code are then neighbours, and so are their scales.
template <class Codec, int kHeadDim>
struct MmaFragment {
  static constexpr int kBlocks = Codec::blocks(kHeadDim);
  static constexpr int kPairs = 16 / Codec::kBits;               // a word
  static constexpr int kChunks = kHeadDim * Codec::kBits / 128;  // 16 bytes each
  static constexpr int kBlockChunks = kChunks / kBlocks;
  static constexpr int kBlockPairs = kBlockChunks * kPairs;  // a lane's pairs; for V, its elements
  static constexpr bool kTwoWords = Codec::kScaling == Scaling::kChannel && kChunks > 1;
  static_assert(kBlockChunks > 0 && kBlockPairs * kBlocks == kHeadDim / 8);

  // The element in the lower or upper half of the lane's pair of K.
  KV_DEVICE static int key_element(int t, int pair, int upper) {
    if (kTwoWords)
      return Codec::element(kHeadDim, pair / (2 * kPairs) * 8 + 2 * t + upper, pair % (2 * kPairs));
    return Codec::element(kHeadDim, pair / kPairs * 4 + t, pair % kPairs + upper * kPairs);
  }
  // The lane's element i of V.
  KV_DEVICE static int value_element(int g, int i) {
    const int half = i / kPairs * 8 + g;
    return Codec::element(kHeadDim, half / 2, half % 2 * kPairs + i % kPairs);
  }
};

// The 16 rows of a matrix are the upper parts of 8 queries, then their lower parts; a third part takes a matrix that is half
// empty. 16 queries have a matrix a part.
template <class Number, int kQueries, int kParts>
struct SplitOperand {
  static constexpr int kSlots = kQueries / 8;
  static constexpr int kMatrices = kSlots == 2 ? kParts : (kParts + 1) / 2;
  uint32_t matrix[kMatrices][4];  // in multiply()'s order

  // Part `part` of a slot's columns 2t and 2t + 1 (i = 0), or 2t + 8 and 2t + 9.
  KV_DEVICE uint32_t& at(int part, int slot, int i) {
    return kSlots == 2 ? matrix[part][2 * i + slot] : matrix[part / 2][2 * i + part % 2];
  }

  // x[slot]: the lane's columns 2t, 2t + 1, 2t + 8 and 2t + 9 of query 8 * slot + g, from `first` on.
  template <int kNumbers>
  KV_DEVICE void set(const float (&x)[kSlots][kNumbers], int first) {
    for (int slot = 0; slot < kSlots; ++slot) {
      for (int i = 0; i < 2; ++i) {
        float low = x[slot][first + 2 * i], high = x[slot][first + 2 * i + 1];
        for (int part = 0; part < kParts; ++part) {
          const uint32_t word = at(part, slot, i) = Number::pack(low, high);
          low -= Number::unpack(word).x;
          high -= Number::unpack(word).y;
        }
        if constexpr (kParts == 3 && kSlots == 1) at(3, slot, i) = 0;
      }
    }
  }

  // Multiplies every column with its own number, in two binary16 parts. The upper part is rounded; its rounding error is exact
  // in binary16 and goes to the lower part.
  KV_DEVICE SplitOperand times(const uint32_t (&by)[2]) const {
    static_assert(kParts == 2);
    SplitOperand own = *this, scaled;
    for (int i = 0; i < 2 * kSlots; ++i) {
      const uint32_t upper = own.at(0, i / 2, i % 2), lower = own.at(1, i / 2, i % 2), x = by[i % 2];
      const uint32_t rounded = simt::fma_half2(upper, x, 0u);
      scaled.at(0, i / 2, i % 2) = rounded;
      scaled.at(1, i / 2, i % 2) =
          simt::fma_half2(lower, x, simt::fma_half2(upper, x, simt::negative_half2(rounded)));
    }
    return scaled;
  }

  KV_DEVICE void multiply(const uint32_t (&b)[2], float (&c)[4]) const {
    for (const auto& rows : matrix) Number::multiply(rows, b, c);
  }
};

// The lane's column b of a product, for query 8 * slot + g: the sum of the parts.
template <int kQueries>
KV_DEVICE float product(const float (&c)[4], int slot, int b) {
  return kQueries == 8 ? c[b] + c[2 + b] : c[2 * slot + b];
}

// Reductions over the four lanes that hold the same queries.
KV_DEVICE float sum_of_quad(float x) {
  x += simt::shuffle_xor(x, 1);
  return x + simt::shuffle_xor(x, 2);
}
KV_DEVICE float largest_of_quad(float x) { return simt::largest_of_lanes(x, 4); }

// The power of two that brings a positive number to [1, 2); 1 if the number is not normal.
KV_DEVICE float power_to_one(float x) {
  const uint32_t exponent = std::bit_cast<uint32_t>(x) >> 23;
  return exponent == 0 || exponent >= 254 ? 1.0f : std::bit_cast<float>((254 - exponent) << 23);
}

// 1 over a power of two, exact.
KV_DEVICE float one_over_power(float x) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(x));
}

// The base-2 logarithm of a number's magnitude, rounded down, at least -100. The exponent becomes a float as the low bits of
// 2^23, since conversions are slow.
KV_DEVICE float rounded_log2(float x) {
  const uint32_t raised = simt::mask_or(std::bit_cast<uint32_t>(x) >> 23, 0xffu, 0x4b000000u);
  return simt::larger(std::bit_cast<float>(raised) - (8388608.0f + 127.0f), -100.0f);
}

}  // namespace kv::cuda
