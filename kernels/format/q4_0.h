// q4_0: ggml's blocks of 32 4-bit codes under one f16 scale. Codes are cut off at +7.
//
//   data  D/32 blocks of 16 bytes    meta  D/32 f16 scales    element i  (code - 8) * scale[i/32]    range  524032
//
// Byte j of a block has code j in its low and code j + 16 in its high nibble.
#pragma once

#include "kernels/format/ggml_format.h"

namespace kv {

// `first`: the block's first element of the largest magnitude, with its sign. ggml starts from +0, so a block of
// -0 has the sign of +0.
KV_HD inline BlockScale q4_0_scale(float first) {
  return block_scale((first + 0.0f) / -8.0f, magnitude_bits(first) < kInfinityBits);
}

KV_HD inline unsigned q4_0_code(float x, float inverse_scale) {
  return static_cast<unsigned>(static_cast<int32_t>(clamp_number(x * inverse_scale + 8.5f, 0.0f, 15.0f)));
}

struct Q4_0Format : GgmlFormat<Q4_0Format, Format::kQ4_0, 4> {
  static constexpr uint32_t kSignBits = 0;  // codes are unsigned
  static constexpr int kHalfBlock = kGgmlBlock / 2;
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) {
    return word / 4 * kGgmlBlock + word % 4 * 4 + slot / 2 + slot % 2 * kHalfBlock;
  }
  KV_HD static float load_element(const std::byte* data, const std::byte* meta, int i) {
    const int in_block = i % kGgmlBlock;
    const int pair = load<uint8_t>(data, i / kGgmlBlock * kHalfBlock + in_block % kHalfBlock);
    const int code = in_block < kHalfBlock ? pair & 15 : pair >> 4;
    return static_cast<float>(code - 8) * block_scale_of(meta, i);
  }
  static std::string name(const Encoding&) { return "q4_0"; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
