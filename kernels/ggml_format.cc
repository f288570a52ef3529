// kQ8_0 and kQ4_0: ggml's codes and scales (ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref),
// with the scales in a plane of their own. Where ggml's scale would overflow f16, or its inverse f32, ours
// stays finite.
#include <cmath>
#include <limits>

#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

constexpr float kLargestHalf = 65504.0f;

// A block's scale as stored, and the factor that turns its elements into codes.
struct BlockScale {
  uint16_t stored;
  float inverse;
};

BlockScale block_scale(float d, bool finite) {
  if (!finite) return {f32_to_f16(std::numeric_limits<float>::quiet_NaN()), 0.0f};
  if (std::fabs(d) > kLargestHalf) d = std::copysign(kLargestHalf, d);
  const float inverse = std::fabs(d) < 0x1p-126f ? 0.0f : 1.0f / d;  // so small a scale is stored as 0 anyway
  return {f32_to_f16(d), inverse};
}

// roundf(x) clamped to ±127: halves away from zero. The largest float below 1/2 keeps 0.49999997 from
// becoming 1. The comparisons are written so that NaN, which only a non-finite block has, becomes a number.
int8_t away_from_zero(float x) {
  x += std::copysign(0x1.fffffep-2f, x);
  x = x > -127.5f ? x : -127.5f;
  x = x < 127.5f ? x : 127.5f;
  return static_cast<int8_t>(static_cast<int32_t>(x));
}

unsigned nibble(float x) {
  x += 8.5f;
  x = x > 0.0f ? x : 0.0f;
  x = x < 15.0f ? x : 15.0f;
  return static_cast<unsigned>(static_cast<int32_t>(x));
}

// The first element of this magnitude, with its sign. ggml starts from +0, so a block of -0 has the sign of
// +0.
float first_of(uint32_t magnitude, const float* x) {
  for (int i = 0; i < kGgmlBlock; ++i) {
    if ((std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu) == magnitude) return x[i] + 0.0f;
  }
  return 0.0f;
}

}  // namespace

void encode_q8_0(int n, const float* row, std::byte* data, std::byte* meta) {
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const uint32_t largest = largest_magnitude_bits(kGgmlBlock, row);
    const BlockScale scale = block_scale(std::bit_cast<float>(largest) / 127.0f, largest < kInfinityBits);
    for (int i = 0; i < kGgmlBlock; ++i)
      data[i] = static_cast<std::byte>(away_from_zero(row[i] * scale.inverse));
    store(meta, b, scale.stored);
  }
}

void decode_q8_0(int n, const std::byte* data, const std::byte* meta, float* row) {
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const float scale = f16_to_f32(load<uint16_t>(meta, b));
    for (int i = 0; i < kGgmlBlock; ++i) row[i] = static_cast<float>(static_cast<int8_t>(data[i])) * scale;
  }
}

void encode_q4_0(int n, const float* row, std::byte* data, std::byte* meta) {
  constexpr int kHalf = kGgmlBlock / 2;
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kHalf) {
    const uint32_t largest = largest_magnitude_bits(kGgmlBlock, row);
    const BlockScale scale = block_scale(first_of(largest, row) / -8.0f, largest < kInfinityBits);
    for (int i = 0; i < kHalf; ++i) {
      const unsigned low = nibble(row[i] * scale.inverse), high = nibble(row[i + kHalf] * scale.inverse);
      data[i] = static_cast<std::byte>(low | (high << 4));
    }
    store(meta, b, scale.stored);
  }
}

void decode_q4_0(int n, const std::byte* data, const std::byte* meta, float* row) {
  constexpr int kHalf = kGgmlBlock / 2;
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kHalf) {
    const float scale = f16_to_f32(load<uint16_t>(meta, b));
    for (int i = 0; i < kHalf; ++i) {
      const int byte = static_cast<int>(data[i]);
      row[i] = static_cast<float>((byte & 15) - 8) * scale;
      row[i + kHalf] = static_cast<float>((byte >> 4) - 8) * scale;
    }
  }
}

}  // namespace kv
