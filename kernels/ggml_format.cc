// kQ8_0 and kQ4_0: ggml's codes and scales (ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref),
// with the scales in a plane of their own.

#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

// The first element of this magnitude, with its sign.
float first_of(uint32_t magnitude, const float* x) {
  for (int i = 0; i < kGgmlBlock; ++i) {
    if (magnitude_bits(x[i]) == magnitude) return x[i];
  }
  return 0.0f;
}

}  // namespace

void encode_q8_0(int n, const float* row, std::byte* data, std::byte* meta) {
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const BlockScale scale = q8_0_scale(largest_magnitude_bits(kGgmlBlock, row));
    for (int i = 0; i < kGgmlBlock; ++i) data[i] = static_cast<std::byte>(q8_0_code(row[i], scale.inverse));
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
    const BlockScale scale = q4_0_scale(first_of(largest_magnitude_bits(kGgmlBlock, row), row));
    for (int i = 0; i < kHalf; ++i) {
      const unsigned low = q4_0_code(row[i], scale.inverse);
      const unsigned high = q4_0_code(row[i + kHalf], scale.inverse);
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
