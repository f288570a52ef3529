// Scales that channels of K share over a group of rows, as a lane of decode_lane.h multiplies its queries with them.
#pragma once

#include "kernels/cuda/attention/mma_fragment.h"
#include "kernels/cuda/attention/operand.h"
#include "kernels/cuda/attention/tile.h"

namespace kv::cuda {

// What queries are multiplied with since a code's bits may lie higher than its byte's lowest.
template <class K>
KV_DEVICE constexpr float unshift(int code) {
  return 1.0f / (1 << K::shift(code));
}

// Of a group's scales or zero points, [head_dim] f16, those of the lane's elements.
template <class K, int kHeadDim>
struct LaneChannels {
  using Keys = MmaFragment<K, kHeadDim>;
  static constexpr int kCodes = 2 * Keys::kPairs;  // of a word
  static constexpr int kWords = (Keys::kKeyWords + 1) / 2;
  uint32_t halves[kCodes][kWords];  // of each code, those of the lane's words

  KV_DEVICE void read(int t, const std::byte* all) {
    constexpr int kAtOnce = kWords < 4 ? kWords : 4;
    KV_UNROLL
    for (int code = 0; code < kCodes; ++code) {
      const std::byte* from = all + 2 * Keys::key_element(t, code % Keys::kPairs, code / Keys::kPairs);
      KV_UNROLL
      for (int i = 0; i < kWords; i += kAtOnce) {
        uint32_t word[kAtOnce];
        if constexpr (Keys::kKeyWords == 1) {
          word[0] = simt::read<uint16_t>(from);
        } else {
          read_words<16>(from, 0, i, word);
        }
        KV_UNROLL
        for (int j = 0; j < kAtOnce; ++j) halves[code][i + j] = word[j];
      }
    }
  }

  // Those of the two elements that meet in the lane's pair of K.
  KV_DEVICE uint32_t pair(int pair) const {
    const int code = pair % Keys::kPairs, word = pair / Keys::kPairs;
    return simt::permute_bytes(halves[code][word / 2], halves[code + Keys::kPairs][word / 2],
                               word % 2 ? 0x7632u : 0x5410u);
  }

  // By a power of two, less what the codes' bits are worth more.
  KV_DEVICE void multiply(float power) {
    KV_UNROLL
    for (int code = 0; code < kCodes; ++code) {
      const float own = power * unshift<K>(code % Keys::kPairs);
      KV_UNROLL
      for (uint32_t& two : halves[code]) two = simt::fma_half2(two, simt::pack_half2(own, own), 0u);
    }
  }
};

// The power of two that brings the largest of a group's scales to [256, 512), as far as binary16 has it. A warp's.
template <int kHeadDim>
KV_DEVICE float power_to_256(const std::byte* scales) {
  uint32_t own[kHeadDim / 64];
  read_words<16>(scales + simt::lane() * kHeadDim / 16, 0, 0, own);
  float largest = 0.0f;
  KV_UNROLL
  for (const uint32_t two : own) {
    const float2 both = simt::unpack_half2(two);
    largest = simt::larger(largest, simt::larger(both.x, both.y));
  }
  KV_UNROLL
  for (int mask = 1; mask < simt::kWarp; mask *= 2)
    largest = simt::larger(largest, simt::shuffle_xor(largest, mask));
  return std::fmin(256.0f * power_to_one(largest), 32768.0f);
}

}  // namespace kv::cuda
