// The Walsh–Hadamard transform of rows, scaled so that it keeps their lengths and dot products: a large channel is spread
// over all channels of its block, so that the steps of integer codes become smaller (QuaRot, Ashkboos et al. 2024,
// arXiv:2404.00456).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/span.h"

namespace kv {

// Channels that are mixed with one another: the largest power of two that divides head_dim, so that 80 has blocks of 16.
inline int hadamard_block(int head_dim) { return head_dim & -head_dim; }

// True if the pseudo-random sign of a channel is negative: the top bit of SplitMix64's output (Steele, Lea
// and Flood 2014) for the number `stream` * 2^32 + channel. It never changes, so that stored rows can be read
// back.
constexpr bool random_sign(uint32_t stream, int channel) {
  uint64_t z = ((uint64_t{stream} << 32 | static_cast<uint32_t>(channel)) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) >> 63 != 0;
}
inline constexpr uint32_t kRotationSigns = 0, kSketchSigns = 1;  // streams

// The signs as masks: an exclusive or with an f32's bits changes its sign.
constexpr std::array<uint32_t, kMaxHeadDim> sign_masks(uint32_t stream) {
  std::array<uint32_t, kMaxHeadDim> masks{};
  for (int i = 0; i < kMaxHeadDim; ++i)
    masks[static_cast<size_t>(i)] = random_sign(stream, i) ? 0x80000000u : 0u;
  return masks;
}
inline constexpr auto kRotationFlips = sign_masks(kRotationSigns), kSketchFlips = sign_masks(kSketchSigns);

// Changes the sign of the rows' [rows, head_dim] elements where that of kRotationSigns is negative.
void flip_signs(float* rows, int64_t count, int head_dim);

// to[row] = H from[row], [rows, head_dim]; H[i][j] = (-1)^popcount(i & j) / sqrt(block) within a block, and 0 outside.
// H is its own inverse. `to` may be `from`. Any sum is made in the same order everywhere, so bits do not depend on
// threads or instruction sets.
void hadamard_rows(const float* from, int64_t rows, int head_dim, float* to);
void hadamard_row(const float* from, int head_dim, float* to);

}  // namespace kv
