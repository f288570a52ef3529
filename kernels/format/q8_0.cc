#include "kernels/format/q8_0.h"

namespace kv {

void Q8_0Format::encode(const Encoding&, int head_dim, const float* row, std::byte* data, std::byte* meta) {
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const BlockScale scale = q8_0_scale(largest_magnitude_bits(kGgmlBlock, row));
    for (int i = 0; i < kGgmlBlock; ++i) data[i] = static_cast<std::byte>(q8_0_code(row[i], scale.inverse));
    store(meta, b, scale.stored);
  }
}

void Q8_0Format::decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int, int,
                        float* row) {
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const float scale = f16_to_f32(load<uint16_t>(meta, b));
    for (int i = 0; i < kGgmlBlock; ++i) row[i] = static_cast<float>(static_cast<int8_t>(data[i])) * scale;
  }
}

}  // namespace kv
