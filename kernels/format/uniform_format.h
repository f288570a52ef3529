// Shared by kToken and kChannel: integer codes of 1 to 16 bits on a uniform grid, packed as bits.h has it.
// element = zero + code * scale, code = 0 … 2^bits - 1.
//
// Rounding is to nearest even, against the scale as it is stored: an element in range is off by at most scale/2,
// and what was decoded encodes to the same codes again. Elements beyond the range are stored as the end of the
// range, so that no finite row decodes to NaN or infinity. A NaN or an infinity makes the scale that covers it
// NaN, so that the damage shows.
#pragma once

#include "kernels/format/bits.h"
#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/quantise.h"
#include "kernels/math.h"

namespace kv {

// Half the largest metadata value or less, so that max - min is finite and so is every product of a code and a
// scale.
inline constexpr float kLimitF32 = 0x1p126f;
inline constexpr float kSmallestScale = 0x1p-126f;  // the smallest beside 0, so that its inverse is finite

struct Grid {
  float zero, scale;
};

KV_HD inline Grid poisoned_grid() { return {0.0f, std::bit_cast<float>(kNanBits)}; }
KV_HD inline float top_code(int bits) { return static_cast<float>((1 << bits) - 1); }

KV_HD inline uint16_t nearest_code(float x, const Grid& grid, float inverse_scale, float top) {
  return static_cast<uint16_t>(nearest_even(clamp_number((x - grid.zero) * inverse_scale, 0.0f, top)));
}

// The grid that spans [low, high], as f32 holds it. + 0.0f: a row of -0 and one of +0 are stored alike.
KV_HD inline Grid grid_f32(float low, float high, float top) {
  low = clamp_number(low, -kLimitF32, kLimitF32) + 0.0f;
  high = clamp_number(high, -kLimitF32, kLimitF32);
  if (high == low) return {low, 0.0f};
  const double step = (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(top);
  const float scale = static_cast<float>(step);
  return {low, scale > kSmallestScale ? scale : kSmallestScale};
}

KV_HD inline Grid affine_grid(float low, float high, uint32_t largest_bits, int bits) {
  return largest_bits < kInfinityBits ? grid_f32(low, high, top_code(bits)) : poisoned_grid();
}

struct UniformFormat {
  static constexpr Elements kElements = Elements::kCodes;
  static constexpr int kBits = 0;
  static constexpr double kAttentionError = kCodeAttentionError;
  static constexpr int64_t data_bytes(const Encoding& e, int head_dim) {
    return e.group * packed_bytes(e.bits, head_dim);
  }
  static constexpr bool fills_words(const Encoding& e, int head_dim) {
    return (e.bits == 8 || e.bits == 4 || e.bits == 2) && head_dim * e.bits % 128 == 0;
  }
};

}  // namespace kv
