// The input of an attention kernel: runs of encoded K and V rows, whoever made them.
//
// A cache, however it places, encodes or evicts, shows each (sequence, layer, kv head) as a list of spans in
// logical order. Kernels know only this page, so one attention kernel serves every cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

// The largest head_dim, in numbers a row; every head_dim is a multiple of 8. The widest known is DeepSeek's
// latent row, 512 + 64.
inline constexpr int kMaxHeadDim = 576;

// How the numbers of one side (K or V) are stored. `bits`, `group` and `affine` matter only where the format
// has them.
enum class Format : uint8_t {
  kF32,        // IEEE binary32
  kF16,        // IEEE binary16
  kBf16,       // upper half of a binary32
  kFp8E4M3,    // OCP FP8, 4 exponent bits, largest value 448, one f32 scale a row
  kFp8E5M2,    // OCP FP8, 5 exponent bits, largest value 57344, one f32 scale a row
  kQ8_0,       // ggml: 32 int8 codes under one f16 scale
  kQ4_0,       // ggml: 32 4-bit codes under one f16 scale
  kToken,      // integer codes of `bits`, one scale (and zero point) a row
  kChannel,    // integer codes of `bits`, one scale and zero point a channel over `group` rows (KIVI's K)
  kMxFp8E4M3,  // OCP MX: 32 FP8 under one power of two
  kMxFp8E5M2,  // the same
  kMxFp4,      // OCP MX: 32 E2M1 under one power of two
  kNvFp4,      // NVIDIA: 16 E2M1 under one E4M3
  kTurbo,      // TurboQuant: levels of a normal distribution in `bits`, one f16 scale a row
  kQ4_1,       // ggml: 32 4-bit codes under one f16 scale and one f16 minimum
  kQ5_0,       // ggml: 32 5-bit codes under one f16 scale
  kQ5_1,       // ggml: 32 5-bit codes under one f16 scale and one f16 minimum
  kIq4Nl,      // ggml: 32 of 16 uneven levels under one f16 scale
  kQ6_0,       // ik_llama.cpp: 32 6-bit codes under one f16 scale
  kVq,         // additive vector quantisation: `bits` indices of 8 bits for every 8 values
};

struct Encoding {
  Format format = Format::kF32;
  uint8_t bits = 32;    // bits a stored element, 1…16 for kToken and kChannel
  uint16_t group = 1;   // rows that are encoded together: 1, or kChannel's group
  bool affine = false;  // kToken: a zero point is stored beside the scale
  // A second stage: kNvFp4 has an f32 scale a row above its blocks' own; kTurbo has one more bit an element,
  // the sign from a sketch of the codes' error; kVq has learned codebooks, which Side::meta points to.
  bool second = false;
  bool norm = false;  // kTurbo: the scale gives a decoded row the length that it came with
  friend bool operator==(const Encoding&, const Encoding&) = default;
};

// One side of a span. A *unit* is `encoding.group` consecutive rows, the smallest thing that is encoded or
// moved: unit u has its codes at data + u * stride and its scales and zero points at meta + u * meta_stride.
struct Side {
  const std::byte* data = nullptr;  // [units, stride] codes
  const std::byte* meta =
      nullptr;              // [units, meta_stride] scales and zero points; null where the format has none
  int64_t stride = 0;       // bytes from one unit to the next, at least the unit's own size
  int64_t meta_stride = 0;  // bytes
  Encoding encoding{};
};

// `rows` consecutive cached tokens of one (sequence, layer, kv head). A span starts at the border of a unit;
// only the last unit of a list may be partly filled.
struct Span {
  Side k, v;
  int64_t rows = 0;
};

}  // namespace kv
