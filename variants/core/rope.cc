// Angles in f64, rounded once; rows in f32.
#include "variants/core/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kv {
namespace {

// How much of a pair's own speed YaRN keeps.
double kept_by_yarn(const Rope& rope, int pair, int head_dim) {
  // The pair, as a number with a fraction, that rotates so many times within the trained tokens.
  const auto pair_of = [&](double rotations) {
    return head_dim *
           std::log(static_cast<double>(rope.trained_tokens) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double first = pair_of(rope.high), last = pair_of(rope.low);
  if (rope.mix == RopeMix::kByWholePair) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, head_dim - 1.0);
  if (first == last) last += 0.001;  // the same as in transformers
  return 1 - std::clamp((pair - first) / (last - first), 0.0, 1.0);
}

}  // namespace

double Rope::frequency(int pair, int head_dim) const {
  if (rotated > 0 && pair >= rotated / 2) return 0;
  if (rotated > 0) head_dim = rotated;
  const double speed = std::pow(theta, -2.0 * pair / head_dim), plain = backwards ? -speed : speed;
  if (trained_tokens == 0) return plain / factor;
  if (mix != RopeMix::kByRotations) {
    const double kept = kept_by_yarn(*this, pair, head_dim);
    return kept * plain + (1 - kept) * plain / factor;
  }
  const double rotations = static_cast<double>(trained_tokens) * speed / (2 * std::numbers::pi);
  if (rotations > high) return plain;
  if (rotations < low) return plain / factor;
  const double kept = (rotations - low) / (high - low);
  return kept * plain + (1 - kept) * plain / factor;
}

void rope_angles(const Rope& rope, int head_dim, int64_t position, float* angles) {
  const int pairs = head_dim / 2;
  for (int i = 0; i < pairs; ++i) {
    const double frequency = rope.frequency(i, head_dim), angle = static_cast<double>(position) * frequency;
    const double amplitude = frequency == 0 ? 1 : rope.amplitude;
    angles[i] = static_cast<float>(amplitude * std::cos(angle));
    angles[pairs + i] = static_cast<float>(amplitude * std::sin(angle));
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
