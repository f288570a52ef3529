// q4_1, q5_0, q5_1, q6_0, iq4_nl: ggml's other blocks of 32 elements, whose levels are integers of 8 bits.
//
//           data, D/32 blocks of                    meta, D/32    element i
//   q4_1    16 bytes of nibbles                     f16 d, f16 m  code * d + m
//   q5_0     4 bytes of fifth bits, the nibbles     f16 d         (code - 16) * d
//   q5_1    the same                                f16 d, f16 m  code * d + m
//   q6_0     8 bytes of upper bits, the nibbles     f16 d         (code - 32) * d
//   iq4_nl  the nibbles                             f16 d         level[code] * d
//
// Byte j of the nibbles has the lower bits of code j in its low half and of code j + 16 in its high half. Bit j of the
// fifth bits is code j's. Byte j % 8 of q6_0's upper bits has, from bit 4 * (j / 8) on, two bits of code j, then two of
// code j + 16. Codes and numbers are ggml's own (ggml-quants.c, quantize_row_*_ref), q6_0's are ik_llama.cpp's; d and m lie
// in a plane of their own, as for q8_0 and q4_0.
#pragma once

#include <array>

#include "kernels/format/ggml_format.h"

namespace kv {

inline constexpr int kHalfBlock = kGgmlBlock / 2;

// iq4_nl's 16 levels: denser around 0, as a normal distribution is.
inline constexpr std::array<int8_t, 16> kIq4Levels{-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};

// In the order of enum Format.
inline constexpr const char* kGgmlLevelNames[] = {"q4_1", "q5_0", "q5_1", "iq4_nl", "q6_0"};

template <Format kFormat_, int kBits_, bool kHasMin_>
struct GgmlLevels : FixedWidthRows<kBits_> {
  static constexpr Format kFormat = kFormat_;
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static constexpr double kAttentionError = kCodeAttentionError;
  static constexpr bool kHasMin = kHasMin_, kHasTable = kFormat == Format::kIq4Nl;
  static constexpr int kHighBytes = (kBits_ - 4) * kGgmlBlock / 8;  // before the nibbles
  static constexpr int kBlockBytes = kHighBytes + kHalfBlock, kMetaBytes = kHasMin ? 4 : 2;
  static constexpr int kTop = (1 << kBits_) - 1;
  static constexpr int kMiddle = kHasTable ? 0 : 1 << (kBits_ - 1);  // of the codes
  static constexpr int kZero = kHasMin ? 0 : kMiddle;                // the code of level 0
  static constexpr int level(int code) {                             // an int8
    return kHasTable ? kIq4Levels[static_cast<size_t>(code)] : code - kZero;
  }
  static constexpr int64_t meta_bytes(const Encoding&, int head_dim) {
    return kMetaBytes * int64_t{head_dim / kGgmlBlock};
  }
  static std::string name(const Encoding&) {
    return kGgmlLevelNames[static_cast<int>(kFormat) - static_cast<int>(Format::kQ4_1)];
  }
  static std::string unsupported_reason(const Encoding& e, int head_dim) {
    return blocks_reason(name(e), kGgmlBlock, head_dim);
  }
  static std::vector<Encoding> samples() { return {{.format = kFormat, .bits = kBits_}}; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

using Q4_1Format = GgmlLevels<Format::kQ4_1, 4, true>;
using Q5_0Format = GgmlLevels<Format::kQ5_0, 5, false>;
using Q5_1Format = GgmlLevels<Format::kQ5_1, 5, true>;
using Iq4NlFormat = GgmlLevels<Format::kIq4Nl, 4, false>;
using Q6_0Format = GgmlLevels<Format::kQ6_0, 6, false>;

}  // namespace kv
