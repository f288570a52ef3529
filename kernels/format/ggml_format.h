// Shared by ggml's formats: blocks of 32 elements under one f16 scale each. q8_0's and q4_0's codes and scales are ggml's
// own (ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref) bit for bit; scales lie in a plane of
// their own, so that codes are dense and aligned.
//
// ggml rounds halves away from zero (q8_0) and up (q4_0), against the scale before that is rounded to f16.
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/quantise.h"
#include "kernels/math.h"

namespace kv {

inline constexpr int kGgmlBlock = 32;  // elements under one scale
inline constexpr float kLargestHalf = 65504.0f;

// A block's scale as stored, and the factor that turns its elements into codes.
struct BlockScale {
  uint16_t stored;
  float inverse;
};

// The scale stays finite even if ggml's would overflow f16, or its inverse f32.
KV_HD inline BlockScale block_scale(float d, bool finite) {
  if (!finite) return {f32_to_f16(std::bit_cast<float>(kNanBits)), 0.0f};
  d = clamp_number(d, -kLargestHalf, kLargestHalf);
  const bool tiny = magnitude_bits(d) < 0x00800000u;  // so small a scale is stored as 0 anyway
  return {f32_to_f16(d), tiny ? 0.0f : 1.0f / d};
}

// The first element of a block with this magnitude, with its sign.
inline float first_of(uint32_t magnitude, const float* x) {
  for (int i = 0; i < kGgmlBlock; ++i) {
    if (magnitude_bits(x[i]) == magnitude) return x[i];
  }
  return 0.0f;
}

template <class F, Format kFormat_, int kBits_>
struct GgmlFormat : BlockRows<F, kFormat_, kBits_, kGgmlBlock> {
  static constexpr Elements kElements = Elements::kCodes;
  static constexpr double kAttentionError = kCodeAttentionError;
  static constexpr int kBlockBytes = kGgmlBlock * kBits_ / 8;  // bytes of codes
  static constexpr int64_t meta_bytes(const Encoding&, int head_dim) {
    return 2 * int64_t{head_dim / kGgmlBlock};
  }
  static constexpr bool fills_words(const Encoding&, int) { return true; }
  KV_HD static float block_scale_of(const std::byte* meta, int i) {
    return f16_to_f32(load<uint16_t>(meta, i / kGgmlBlock));
  }
};

}  // namespace kv
