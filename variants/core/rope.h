// Rotary position embedding (Su et al. 2021, arXiv:2104.09864): each pair of a head's channels is rotated by
// an angle proportional to the token's position, so that the product of a rotated query and a rotated key
// depends on their distance alone.
#pragma once

#include <cstdint>

namespace kv {

// The channels of a pair. The same weights under the other convention are another, broken model, and their shapes do not
// show it.
enum class RopePairs : uint8_t {
  kInterleaved,  // 2i and 2i + 1: the paper, llama2.c
  kHalfSplit,    // i and i + head_dim / 2: Hugging Face, whose converted weights are permuted to fit
};

// How the speed of a pair changes between those that are slowed down and those that are not.
enum class RopeMix : uint8_t {
  kByRotations,  // linear in its rotations within the trained tokens: Llama 3.1
  kByPair,       // linear in its number: YaRN (Peng et al. 2023, arXiv:2309.00071)
  kByWholePair,  // YaRN, whose range begins and ends with a pair: transformers' `truncate`
};

// Pair i of head_dim / 2 is rotated by theta^(-2i / head_dim) radians a position, before any scaling.
struct Rope {
  double theta = 10000.0;
  RopePairs pairs = RopePairs::kInterleaved;
  // Slows pairs down, to stretch the context a model was trained for: all of them by `factor`, or if
  // `trained_tokens` is not 0 as Llama 3.1 and YaRN do. There a pair of more than `high` rotations within the
  // trained tokens keeps its speed, one of less than `low` is slowed by `factor`, and those
  // between are mixed.
  double factor = 1.0, low = 1.0, high = 4.0;
  int64_t trained_tokens = 0;
  RopeMix mix = RopeMix::kByRotations;
  double amplitude = 1.0;  // factor of the rotated rows: YaRN's attention factor
  bool backwards = false;  // by negative angles: nanochat
  int rotated = 0;         // channels of a head that are; 0: all. The first rotated / 2 pairs have them

  // Radians a position; negative for `backwards`, 0 for a pair that is not rotated.
  double frequency(int pair, int head_dim) const;
  friend bool operator==(const Rope&, const Rope&) = default;
};

// cos and sin of every pair's angle at `position`, to angles [2, head_dim / 2].
void rope_angles(const Rope& rope, int head_dim, int64_t position, float* angles);

// Rotates one row [head_dim] by such angles; `to` may be `from`.
void rotate(RopePairs pairs, int head_dim, const float* angles, const float* from, float* to);

}  // namespace kv
