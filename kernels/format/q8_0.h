// q8_0: ggml's blocks of 32 int8 codes under one f16 scale.
//
//   data  D int8        meta  D/32 f16 scales        element i  code * scale[i/32]        range  8.3e6
#pragma once

#include "kernels/format/ggml_format.h"

namespace kv {

KV_HD inline BlockScale q8_0_scale(uint32_t largest_bits) {
  return block_scale(std::bit_cast<float>(largest_bits) / 127.0f, largest_bits < kInfinityBits);
}

// roundf(x) clamped to ±127: halves away from zero. The largest float below 1/2 keeps 0.49999997 from becoming
// 1.
KV_HD inline int8_t q8_0_code(float x, float inverse_scale) {
  x = x * inverse_scale;
  const uint32_t half = 0x3effffffu | (std::bit_cast<uint32_t>(x) & 0x80000000u);
  x = clamp_number(x + std::bit_cast<float>(half), -127.5f, 127.5f);
  return static_cast<int8_t>(static_cast<int32_t>(x));
}

struct Q8_0Format : GgmlFormat<Q8_0Format, Format::kQ8_0, 8> {
  static constexpr uint32_t kSignBits =
      0x80808080u;  // a word's codes are signed: flipped, they are code + 128
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) { return 4 * word + slot; }
  KV_HD static float load_element(const std::byte* data, const std::byte* meta, int i) {
    return static_cast<float>(load<int8_t>(data, i)) * block_scale_of(meta, i);
  }
  static std::string name(const Encoding&) { return "q8_0"; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
