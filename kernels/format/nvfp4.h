// nvfp4: NVIDIA's 4-bit floats, 16 E2M1 under one E4M3 scale, and one f32 scale a tensor (NVIDIA 2025, Pretraining Large
// Language Models with NVFP4, arXiv:2509.25149, the appendix on quantisation).
//
//             data              meta                  element i                       range
//   second    D E2M1 (bits.h)   f32, D/16 E4M3        e2m1 * (e4m3[i/16] * f32)        2^127
//   else      the same          D/16 E4M3             e2m1 * e4m3[i/16]                2688
//
// A tensor that is whole before it is stored has its largest magnitude at 6 * 448. A cache grows: what the tensor is has to
// be known when a row is appended. So it is the row, one token of one head, whose 4 bytes are counted; or the f32 is 1
// for all rows, as in an engine without calibration, and is not stored. A block's scale is amax / 6 on the scale of the
// tensor, rounded to nearest even; elements are rounded to nearest even against the scale as it is stored, and saturate.
// A NaN or an infinity makes the scale of its block NaN.
#pragma once

#include "kernels/format/bits.h"
#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/e2m1.h"
#include "kernels/math.h"

namespace kv {

inline constexpr int kNvBlock = 16;  // elements under one E4M3
inline constexpr float kLargestE2m1 = 6.0f, kLargestE4m3 = 448.0f;

struct NvFp4Format : FixedWidthRows<Format::kNvFp4, 4> {
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static constexpr double kAttentionError = kFloatAttentionError;
  static constexpr int64_t scales_at(const Encoding& e) { return e.second ? sizeof(float) : 0; }
  static constexpr int64_t meta_bytes(const Encoding& e, int head_dim) {
    return scales_at(e) + head_dim / kNvBlock;
  }
  static float row_scale(const Encoding& e, const std::byte* meta) {
    return e.second ? load<float>(meta, 0) : 1.0f;
  }
  static std::string name(const Encoding& e) { return e.second ? "nvfp4" : "nvfp4one"; }
  static std::string unsupported_reason(const Encoding&, int head_dim) {
    return blocks_reason("nvfp4", 2 * kNvBlock, head_dim);
  }
  static std::vector<Encoding> samples() {
    return {{.format = kFormat, .bits = kBits, .second = true}, {.format = kFormat, .bits = kBits}};
  }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
