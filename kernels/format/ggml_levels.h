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

// One of these formats.
struct LevelBlocks {
  Format format;
  const char* name;
  int bits;
  int middle;  // the code of level 0; beside a minimum, which level 0 stands for, that in the middle of all
  int nibbles_at;  // in the bytes of a block; the bits above the nibbles lie before them or, if this is 0, behind
  bool has_min = false, has_table = false;

  constexpr int top() const { return (1 << bits) - 1; }
  constexpr int high_at() const { return nibbles_at == 0 ? kHalfBlock : 0; }
  constexpr int block_bytes() const { return kGgmlBlock * bits / 8; }
  constexpr int meta_bytes() const { return has_min ? 4 : 2; }
  constexpr int level(int code) const {  // an int8
    return has_table ? kIq4Levels[static_cast<size_t>(code)] : code - (has_min ? 0 : middle);
  }
};

// In the order of enum Format. A new one is a line here and a name in span.h.
inline constexpr LevelBlocks kLevelBlocks[] = {
    {.format = Format::kQ4_1, .name = "q4_1", .bits = 4, .middle = 8, .nibbles_at = 0, .has_min = true},
    {.format = Format::kQ5_0, .name = "q5_0", .bits = 5, .middle = 16, .nibbles_at = 4},
    {.format = Format::kQ5_1, .name = "q5_1", .bits = 5, .middle = 16, .nibbles_at = 4, .has_min = true},
    {.format = Format::kIq4Nl, .name = "iq4_nl", .bits = 4, .middle = 0, .nibbles_at = 0, .has_table = true},
    {.format = Format::kQ6_0, .name = "q6_0", .bits = 6, .middle = 32, .nibbles_at = 8},
};

// encode() and decode() of the format with this index there.
void encode_level_blocks(size_t index, int head_dim, const float* row, std::byte* data, std::byte* meta);
void decode_level_blocks(size_t index, int head_dim, const std::byte* data, const std::byte* meta,
                         float* row);

// For loops that are compiled for a format.
template <size_t kIndex>
struct GgmlLevels
    : BlockRows<GgmlLevels<kIndex>, kLevelBlocks[kIndex].format, kLevelBlocks[kIndex].bits, kGgmlBlock> {
  static constexpr LevelBlocks kBlocks = kLevelBlocks[kIndex];
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr double kAttentionError = kCodeAttentionError;
  static constexpr int64_t meta_bytes(const Encoding&, int head_dim) {
    return kBlocks.meta_bytes() * int64_t{head_dim / kGgmlBlock};
  }
  static std::string name(const Encoding&) { return kBlocks.name; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta) {
    encode_level_blocks(kIndex, head_dim, rows, data, meta);
  }
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int, int,
                     float* out) {
    decode_level_blocks(kIndex, head_dim, data, meta, out);
  }
};

}  // namespace kv
