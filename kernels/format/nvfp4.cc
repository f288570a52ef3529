#include "kernels/format/nvfp4.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kv {
namespace {

// The factor that brings the row's largest finite magnitude to 6 * 448, and its inverse. 1 for zeros.
struct RowScale {
  float factor = 1.0f, inverse = 1.0f;
};

RowScale scale_of_row(int n, const float* row) {
  constexpr float kLargestRow = 0x1p127f, kLargestFactor = 0x1p126f;  // so that nothing overflows
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (magnitude_bits(row[i]) < kInfinityBits) largest = std::max(largest, std::abs(row[i]));
  }
  if (largest == 0.0f) return {};
  const float factor = std::min(kLargestE2m1 * kLargestE4m3 / std::min(largest, kLargestRow), kLargestFactor);
  return {factor, 1.0f / factor};
}

}  // namespace

void NvFp4Format::encode(const Encoding& e, int head_dim, const float* row, std::byte* data,
                         std::byte* meta) {
  uint16_t codes[kMaxHeadDim];
  const RowScale row_scale = e.second ? scale_of_row(head_dim, row) : RowScale();
  if (e.second) store(meta, 0, row_scale.inverse);
  for (int first = 0; first < head_dim; first += kNvBlock) {
    const float* block = row + first;
    const uint32_t largest = largest_magnitude_bits(kNvBlock, block);
    const float wanted = std::bit_cast<float>(largest) / kLargestE2m1 * row_scale.factor;
    const uint8_t stored = largest < kInfinityBits ? f32_to_fp8<kE4M3>(wanted) : kE4M3.nan;
    const float scale = fp8_to_f32<kE4M3>(stored) * row_scale.inverse;
    const float inverse_scale = std::min(inverse(scale), std::numeric_limits<float>::max());
    for (int i = 0; i < kNvBlock; ++i)
      codes[first + i] =
          static_cast<uint16_t>(stored == kE4M3.nan ? 0u : f32_to_e2m1(block[i] * inverse_scale));
    store(meta + scales_at(e), first / kNvBlock, stored);
  }
  pack_codes(kBits, head_dim, codes, data);
}

void NvFp4Format::decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int,
                         int, float* out) {
  uint16_t codes[kMaxHeadDim];
  unpack_codes(kBits, head_dim, data, codes);
  const float row = row_scale(e, meta);
  for (int i = 0; i < head_dim; ++i) {
    const float scale = fp8_to_f32<kE4M3>(load<uint8_t>(meta + scales_at(e), i / kNvBlock)) * row;
    out[i] = e2m1_to_f32(codes[i]) * scale;
  }
}

}  // namespace kv
