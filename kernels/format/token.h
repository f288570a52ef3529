// kToken: integer codes under one grid a row, that is per token and head.
//
//             data                      meta                  element                   range
//   affine    D codes of `bits`         f32 scale, f32 zero   zero + code * scale       2^126
//   else      the same                  f32 scale             (code - middle) * scale   2^126
//
// Affine: scale = (max - min) / (2^bits - 1) and zero = min; a constant row is exact. Symmetric: scale = absmax /
// (2^(bits-1) - 1) and middle = 2^(bits-1), for 2 bits and more; code 0 is not used.
#pragma once

#include "kernels/format/uniform_format.h"

namespace kv {

KV_HD inline float symmetric_scale(uint32_t largest_bits, int bits) {
  if (largest_bits >= kInfinityBits) return std::bit_cast<float>(kNanBits);
  const float magnitude = clamp_number(std::bit_cast<float>(largest_bits), 0.0f, kLimitF32);
  if (magnitude == 0.0f) return 0.0f;
  const float scale = magnitude / static_cast<float>((1 << (bits - 1)) - 1);
  return scale > kSmallestScale ? scale : kSmallestScale;
}

KV_HD inline uint16_t symmetric_code(float x, float inverse_scale, int bits) {
  const int middle = 1 << (bits - 1);
  const float top = static_cast<float>(middle - 1);
  return static_cast<uint16_t>(nearest_even(clamp_number(x * inverse_scale, -top, top)) + middle);
}

struct TokenFormat : UniformFormat {
  static constexpr Format kFormat = Format::kToken;
  static constexpr Scaling kScaling = Scaling::kRow;
  static std::string name(const Encoding& e);
  static std::string unsupported_reason(const Encoding& e, int head_dim);
  static constexpr int64_t meta_bytes(const Encoding& e, int) { return e.affine ? 8 : 4; }
  KV_HD static float element_of(const Encoding& e, int /*head_dim*/, const std::byte* meta, int /*i*/,
                                int code) {
    const float scale = load<float>(meta, 0);
    return e.affine ? load<float>(meta, 1) + static_cast<float>(code) * scale
                    : static_cast<float>(code - (1 << (e.bits - 1))) * scale;
  }
  static std::vector<Encoding> samples();
  static void encode(const Encoding& e, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
