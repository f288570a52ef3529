// How the tensor cores' kernel reads each format: words of codes as they lie in memory, and of each word
// pairs of 16-bit numbers.
//
// Tensor cores take numbers two to a word, and it is ours to say which elements of a row meet in a word, as
// long as both operands agree. So a pair is what one mask and one constant make of a word in place: codes i
// and i + kPairs, in its lower and its upper half. Integer codes become binary16 without a conversion, which
// is slow: as the low bits of 1024, from which 1024 and the middle of the codes are then subtracted. All
// pairs are exact. Scales never touch an element: they go to the queries, to the scores or to the weights.
#pragma once

#include "kernels/cuda/pages.h"
#include "kernels/cuda/simt.h"
#include "kernels/formats.h"
#include "kernels/quantise.h"

namespace kv::cuda {

enum class Scaling {
  kNone,     // elements are the numbers
  kRow,      // element = zero + number * scale, for the row
  kBlock,    // element = number * scale, for 32 elements
  kChannel,  // element = zero + number * scale, for each channel over a group of rows
};

struct ScaleZero {
  float scale, zero;
};

// ---- what tensor cores multiply ----

// kQueryParts: so many of them are as good as an f32 number.
struct Half {
  static constexpr int kQueryParts = 2;
  KV_DEVICE static uint32_t pack(float low, float high) { return simt::pack_half2(low, high); }
  KV_DEVICE static float2 unpack(uint32_t word) { return simt::unpack_half2(word); }
  KV_DEVICE static void multiply(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
    simt::multiply_half_tiles(a, b, c);
  }
};

struct Bfloat {
  static constexpr int kQueryParts = 3;
  KV_DEVICE static uint32_t pack(float low, float high) { return simt::pack_bfloat2(low, high); }
  KV_DEVICE static float2 unpack(uint32_t word) { return simt::unpack_bfloat2(word); }
  KV_DEVICE static void multiply(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
    simt::multiply_bfloat_tiles(a, b, c);
  }
};

// ---- integer codes ----

// A whole number below 2048 as binary16, twice.
KV_HD constexpr uint32_t both_halves(uint32_t n) {
  uint32_t exponent = 0;
  while (n >> exponent > 1) ++exponent;
  return ((15 + exponent) << 10 | (n << (10 - exponent) & 0x3ffu)) * 0x10001u;
}

// Codes i and i + 16 / kWidth of a word, less kMiddle. Bits that are not the lowest of their byte stay where
// they are, as so many times the code, and are divided by that when 1024 is subtracted.
template <int kWidth, int kMiddle>
KV_DEVICE uint32_t integer_pair(uint32_t word, int i) {
  constexpr uint32_t kMask = ((1u << kWidth) - 1u) * 0x10001u, kBase = both_halves(1024), kSign = 0x80008000u;
  const int in_byte = kWidth * i % 8, byte = kWidth * i / 8;
  const uint32_t raised = (word >> (8 * byte) & kMask << in_byte) | kBase;
  const uint32_t one_over = (static_cast<uint32_t>(15 - in_byte) << 10) * 0x10001u;
  const uint32_t offset = both_halves((1024u >> in_byte) + kMiddle);
  return simt::fma_half2(raised, one_over, offset | kSign);
}

KV_HD constexpr int words_of(int bits, int head_dim) { return head_dim * bits / 32; }

// ---- the formats ----
// Of each: kBits, how it scales, in how many `blocks` of one scale a row falls, pair(), and element(): which
// element of a row code `code` of word `word` is.

template <class Number_, Format kFormat>
struct Floats16 {
  using Number = Number_;
  static constexpr int kBits = 16;
  static constexpr Scaling kScaling = Scaling::kNone;
  static bool stores(const Encoding& e) { return e.format == kFormat; }
  static constexpr int blocks(int) { return 1; }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static uint32_t pair(uint32_t word, int) { return word; }
  KV_HD static constexpr int element(int, int word, int code) { return 2 * word + code; }
};
using F16 = Floats16<Half, Format::kF16>;
using Bf16 = Floats16<Bfloat, Format::kBf16>;

// Both formats of FP8 have a scale, and no zero, a row. E5M2 is the upper half of a binary16.
template <bool kE5>
struct Fp8Codec {
  using Number = Half;
  static constexpr int kBits = 8;
  static constexpr Scaling kScaling = Scaling::kRow;
  static bool stores(const Encoding& e) { return e.format == (kE5 ? Format::kFp8E5M2 : Format::kFp8E4M3); }
  static constexpr int blocks(int) { return 1; }
  static constexpr int meta_bytes(int) { return 4; }
  KV_DEVICE static uint32_t pair(uint32_t word, int i) {
    const auto low = static_cast<uint32_t>(i), high = low + 2;
    if constexpr (kE5) return simt::permute_bytes(word, 0u, 0x0404u | low << 4 | high << 12);
    return simt::e4m3_to_half2(simt::permute_bytes(word, 0u, low | high << 4));
  }
  KV_HD static constexpr int element(int, int word, int code) { return 4 * word + code; }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int) { return {simt::read<float>(meta), 0.0f}; }
};
using E4m3 = Fp8Codec<false>;
using E5m2 = Fp8Codec<true>;

KV_DEVICE float read_half(const std::byte* p) { return simt::unpack_half2(simt::read<uint16_t>(p)).x; }

struct Q8 {
  using Number = Half;
  static constexpr int kBits = 8;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static bool stores(const Encoding& e) { return e.format == Format::kQ8_0; }
  static constexpr int blocks(int head_dim) { return head_dim / kGgmlBlock; }
  static constexpr int meta_bytes(int head_dim) { return 2 * blocks(head_dim); }
  // Signed: the top bit flipped adds 128.
  KV_DEVICE static uint32_t pair(uint32_t word, int i) { return integer_pair<8, 128>(word ^ 0x80808080u, i); }
  KV_HD static constexpr int element(int, int word, int code) { return 4 * word + code; }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int block) {
    return {read_half(meta + 2 * block), 0.0f};
  }
};

struct Q4 {
  using Number = Half;
  static constexpr int kBits = 4;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static bool stores(const Encoding& e) { return e.format == Format::kQ4_0; }
  static constexpr int blocks(int head_dim) { return head_dim / kGgmlBlock; }
  static constexpr int meta_bytes(int head_dim) { return 2 * blocks(head_dim); }
  KV_DEVICE static uint32_t pair(uint32_t word, int i) { return integer_pair<4, 8>(word, i); }
  // A block's 16 bytes have elements 0 … 15 in their low nibbles and 16 … 31 in their high ones.
  KV_HD static constexpr int element(int, int word, int code) {
    return word / 4 * kGgmlBlock + word % 4 * 4 + code / 2 + code % 2 * (kGgmlBlock / 2);
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int block) { return Q8::scale(meta, block); }
};

// Codes of 8, 4 or 2 bits as kernels/bits.h deals them out. They are taken from the middle of their range, so
// that little cancels where a zero point is applied to sums.
template <int kWidth>
struct Dealt {
  using Number = Half;
  static constexpr int kBits = kWidth, kMiddle = 1 << (kWidth - 1);
  static constexpr int blocks(int) { return 1; }
  KV_DEVICE static uint32_t pair(uint32_t word, int i) { return integer_pair<kWidth, kMiddle>(word, i); }
  KV_HD static constexpr int element(int head_dim, int word, int code) {
    return code * words_of(kWidth, head_dim) + word;
  }
};

template <int kWidth, bool kAffine = true>
struct Token : Dealt<kWidth> {
  static constexpr Scaling kScaling = Scaling::kRow;
  static bool stores(const Encoding& e) {
    return e.format == Format::kToken && e.affine == kAffine && e.bits == kWidth;
  }
  static constexpr int meta_bytes(int) { return kAffine ? 8 : 4; }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int) {
    const float step = simt::read<float>(meta);
    if constexpr (!kAffine) return {step, 0.0f};
    return {step, simt::fma(step, float{Dealt<kWidth>::kMiddle}, simt::read<float>(meta + 4))};
  }
};

// kChannel: the metadata, [2, head_dim] f16, are the group's and not the row's.
template <int kWidth>
struct Channel : Dealt<kWidth> {
  static constexpr Scaling kScaling = Scaling::kChannel;
  static bool stores(const Encoding& e) {
    return e.format == Format::kChannel && e.bits == kWidth && e.group % 32 == 0;
  }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static ScaleZero scale(const std::byte* channels, int head_dim, int channel) {
    const float step = read_half(channels + 2 * channel);
    return {step,
            simt::fma(step, float{Dealt<kWidth>::kMiddle}, read_half(channels + 2 * (head_dim + channel)))};
  }
};

}  // namespace kv::cuda
