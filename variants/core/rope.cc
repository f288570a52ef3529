// Angles in f64, rounded once; rows in f32.
#include "variants/core/rope.h"

#include <cmath>
#include <numbers>

namespace kv {

double Rope::frequency(int pair, int head_dim) const {
  const double plain = std::pow(theta, -2.0 * pair / head_dim);
  if (trained_tokens == 0) return plain / factor;
  const double rotations = static_cast<double>(trained_tokens) * plain / (2 * std::numbers::pi);
  if (rotations > high) return plain;
  if (rotations < low) return plain / factor;
  const double kept = (rotations - low) / (high - low);
  return kept * plain + (1 - kept) * plain / factor;
}

void rope_angles(const Rope& rope, int head_dim, int64_t position, float* angles) {
  const int pairs = head_dim / 2;
  for (int i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * rope.frequency(i, head_dim);
    angles[i] = static_cast<float>(std::cos(angle));
    angles[pairs + i] = static_cast<float>(std::sin(angle));
  }
}

void rotate(RopePairs pairs, int head_dim, const float* angles, const float* from, float* to) {
  const int half = head_dim / 2;
  const bool halves = pairs == RopePairs::kHalfSplit;
  for (int i = 0; i < half; ++i) {
    const int first = halves ? i : 2 * i, second = halves ? i + half : 2 * i + 1;
    const float a = from[first], b = from[second], c = angles[i], s = angles[half + i];
    to[first] = a * c - b * s;
    to[second] = a * s + b * c;
  }
}

}  // namespace kv
