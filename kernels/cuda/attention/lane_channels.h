// Scales of K's channels, one a group of rows, with which a lane of decode_lane.h multiplies its queries.
#pragma once

#include "kernels/cuda/attention/operand.h"
#include "kernels/cuda/attention/tile.h"

namespace kv::cuda {

// A lane's part of a group's scales or zero points, [head_dim] f16: those of its pairs of K.
template <class K, int kHeadDim>
struct LaneChannels {
  using Keys = MmaFragment<K, kHeadDim>;
  uint32_t pair[kHeadDim / 8];

  KV_DEVICE void read(int t, const std::byte* all) {
    const std::byte* own_code = all + simt::lane() / 8 * 2 * words_of(K::kBits, kHeadDim);
    KV_UNROLL
    for (int first = 0; first < kHeadDim / 8; first += 4) {
      uint32_t four[4];
      if constexpr (Keys::kTwoWords) {
        // Loads runs of eight channels for four codes, the same for all rows; lane t has channels 2t and 2t + 1 of a run.
        simt::load_matrices<false>(own_code + 2 * Keys::key_element(0, first, 0), four);
      } else {
        for (int i = 0; i < 4; ++i) {
          const auto half = [&](int upper) {
            return uint32_t{simt::read<uint16_t>(all + 2 * Keys::key_element(t, first + i, upper))};
          };
          four[i] = half(0) | half(1) << 16;
        }
      }
      for (int i = 0; i < 4; ++i) pair[first + i] = four[i];
    }
  }

  // Multiplies the scales with the power of two that brings the largest to [256, 512), within binary16's range. Returns 1 over
  // that power.
  KV_DEVICE float normalise(const std::byte* all) {
    const auto own = simt::read<Words<kHeadDim / 64>>(all + simt::lane() * kHeadDim / 16);
    uint32_t largest = 0;
    for (const uint32_t two : own.word) largest = simt::larger(largest, simt::larger(two, two << 16));
    // The bits of non-negative numbers have the numbers' order. A power of two is its exponent.
    constexpr int kBias = 15, kMost = 15;
    const int exponent = static_cast<int>(simt::largest_of_warp(largest) >> 26) - kBias;
    const int power = 8 - exponent < kMost ? 8 - exponent : kMost;
    const uint32_t both = static_cast<uint32_t>(power + kBias) * 0x04000400u;
    for (uint32_t& two : pair) two = simt::fma_half2(two, both, 0u);
    return std::bit_cast<float>(static_cast<uint32_t>(127 - power) << 23);
  }
};

// Reads words 2t and 2t + 1 of the lane's rows g, of the 32 bytes from chunk `chunk` on: the lower halves for each 8 rows, then
// the upper halves for each 8 rows.
template <class K, int kHeadDim, int kWords>
KV_DEVICE void read_two_words(const std::byte* tile, int chunk, uint32_t (&halves)[kWords]) {
  constexpr int kRowBytes = kHeadDim * K::kBits / 8, kRowTiles = kWords / 2;
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  for (int n = 0; n < kRowTiles; ++n) {
    const auto two = read_words<2, kRowBytes>(tile, 8 * n + g, 4 * chunk + 2 * t);
    halves[n] = simt::permute_bytes(two.word[0], two.word[1], 0x5410u);
    halves[kRowTiles + n] = simt::permute_bytes(two.word[0], two.word[1], 0x7632u);
  }
}

}  // namespace kv::cuda
