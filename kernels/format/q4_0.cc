#include "kernels/format/q4_0.h"

namespace kv {

void Q4_0Format::encode(const Encoding&, int head_dim, const float* row, std::byte* data, std::byte* meta) {
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, row += kGgmlBlock, data += kHalfBlock) {
    const BlockScale scale = q4_0_scale(first_of(largest_magnitude_bits(kGgmlBlock, row), row));
    for (int i = 0; i < kHalfBlock; ++i) {
      const unsigned low = q4_0_code(row[i], scale.inverse);
      const unsigned high = q4_0_code(row[i + kHalfBlock], scale.inverse);
      data[i] = static_cast<std::byte>(low | (high << 4));
    }
    store(meta, b, scale.stored);
  }
}

void Q4_0Format::decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int, int,
                        float* row) {
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, row += kGgmlBlock, data += kHalfBlock) {
    const float scale = f16_to_f32(load<uint16_t>(meta, b));
    for (int i = 0; i < kHalfBlock; ++i) {
      const int byte = static_cast<int>(data[i]);
      row[i] = static_cast<float>((byte & 15) - 8) * scale;
      row[i + kHalfBlock] = static_cast<float>((byte >> 4) - 8) * scale;
    }
  }
}

}  // namespace kv
