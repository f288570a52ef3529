// How the fast kernels read each format: the octet of codes as exact f32 numbers, and where its scale goes.
//
// A scale never touches the hot loop's elements if it need not: a row's is multiplied with the finished dot
// product (K) or with the row's weight (V); a block's the same, lane by lane. Only a channel's meets every
// element. Integer codes become floats without a conversion, which is slow: as the low bits of 2^23, minus
// 2^23.
#pragma once

#include "kernels/cuda/octet.h"
#include "kernels/cuda/simt.h"

namespace kv::cuda {

enum class Scaling {
  kNone,     // codes are the elements
  kRow,      // element = zero + code * scale, for the row
  kBlock,    // element = code * scale, for 32 elements
  kChannel,  // element = zero + code * scale, for each channel over a group of rows
};

struct ScaleZero {
  float scale, zero;
};

inline constexpr uint32_t kCodeBase = 0x4b000000u;  // 2^23

KV_DEVICE float code_to_float(uint32_t bits, float base) { return std::bit_cast<float>(bits) - base; }

// Eight codes of 8 bits, of which `base` - 2^23 is to be subtracted.
KV_DEVICE void bytes_to_floats(uint32_t low, uint32_t high, float base, float (&x)[kOctet]) {
  for (uint32_t i = 0; i < 4; ++i) {
    x[i] = code_to_float(simt::permute_bytes(low, kCodeBase, 0x7440u + i), base);
    x[i + 4] = code_to_float(simt::permute_bytes(high, kCodeBase, 0x7440u + i), base);
  }
}

struct F32 {
  static constexpr int kBits = 32;
  static constexpr Scaling kScaling = Scaling::kNone;
  static bool stores(const Encoding& e) { return e.format == Format::kF32; }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    for (int i = 0; i < kOctet; ++i) x[i] = simt::read<float>(row + 32 * octet + 4 * i);
  }
};

struct F16 {
  static constexpr int kBits = 16;
  static constexpr Scaling kScaling = Scaling::kNone;
  static bool stores(const Encoding& e) { return e.format == Format::kF16; }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    const uint4 word = simt::read<uint4>(row + 16 * octet);
    const uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
    for (int i = 0; i < 4; ++i) {
      const float2 pair = simt::unpack_half2(pairs[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
};

struct Bf16 {
  static constexpr int kBits = 16;
  static constexpr Scaling kScaling = Scaling::kNone;
  static bool stores(const Encoding& e) { return e.format == Format::kBf16; }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    const uint4 word = simt::read<uint4>(row + 16 * octet);
    const uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = std::bit_cast<float>(pairs[i] << 16);
      x[2 * i + 1] = std::bit_cast<float>(pairs[i] & 0xffff0000u);
    }
  }
};

// Both formats of FP8 have a scale, and no zero, a row.
template <bool kE5>
struct Fp8Codec {
  static constexpr int kBits = 8;
  static constexpr Scaling kScaling = Scaling::kRow;
  static bool stores(const Encoding& e) { return e.format == (kE5 ? Format::kFp8E5M2 : Format::kFp8E4M3); }
  static constexpr int meta_bytes(int) { return 4; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    const uint2 word = simt::read<uint2>(row + 8 * octet);
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = (i < 2 ? word.x : word.y) >> (16 * (i % 2)) & 0xffffu;
      const float2 pair =
          simt::unpack_half2(kE5 ? simt::permute_bytes(two, 0u, 0x1404u) : simt::e4m3_to_half2(two));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int) { return {simt::read<float>(meta), 0.0f}; }
};
using E4m3 = Fp8Codec<false>;
using E5m2 = Fp8Codec<true>;

struct Q8 {
  static constexpr int kBits = 8;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static bool stores(const Encoding& e) { return e.format == Format::kQ8_0; }
  static constexpr int meta_bytes(int head_dim) { return head_dim / kGgmlBlock * 2; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    const uint2 word = simt::read<uint2>(row + 8 * octet);  // signed: the top bit flipped adds 128
    bytes_to_floats(word.x ^ 0x80808080u, word.y ^ 0x80808080u, 0x1p23f + 128.0f, x);
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int octet) {
    return {f16_to_f32(simt::read<uint16_t>(meta + octet * kOctet / kGgmlBlock * 2)), 0.0f};
  }
};

struct Q4 {
  static constexpr int kBits = 4;
  static constexpr Scaling kScaling = Scaling::kBlock;
  static bool stores(const Encoding& e) { return e.format == Format::kQ4_0; }
  static constexpr int meta_bytes(int head_dim) { return Q8::meta_bytes(head_dim); }
  // A block's bytes have elements 0 … 15 in their low nibbles and 16 … 31 in their high ones.
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int = 0) {
    const uint2 word = simt::read<uint2>(row + octet / 4 * 16 + octet % 2 * 8);
    const int shift = octet % 4 / 2 * 4;
    bytes_to_floats(word.x >> shift & 0x0f0f0f0fu, word.y >> shift & 0x0f0f0f0fu, 0x1p23f + 8.0f, x);
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int octet) { return Q8::scale(meta, octet); }
};

// Codes of 8, 4 or 2 bits as kernels/bits.h deals them out, less `middle`: each from a word of its own.
template <int kWidth, int kMiddle>
KV_DEVICE void dealt_codes(const std::byte* row, int octet, int head_dim, float (&x)[kOctet]) {
  constexpr float kBase = 0x1p23f + kMiddle;
  const int words = head_dim * kWidth / 32;
  KV_UNROLL
  for (int i = 0; i < kOctet; ++i) {
    const int element = octet * kOctet + i;
    const uint32_t word = simt::read<uint32_t>(row + 4 * (element % words));
    const uint32_t code = word >> (element / words * kWidth) & ((1u << kWidth) - 1u);
    x[i] = code_to_float(code | kCodeBase, kBase);
  }
}

// kToken with a zero point. Codes are taken from the middle of their range, so that little cancels when scale
// and zero point are applied to sums.
template <int kWidth>
struct Token {
  static constexpr int kBits = kWidth, kMiddle = 1 << (kWidth - 1);
  static constexpr Scaling kScaling = Scaling::kRow;
  static bool stores(const Encoding& e) { return e.format == Format::kToken && e.affine && e.bits == kWidth; }
  static constexpr int meta_bytes(int) { return 8; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int head_dim) {
    dealt_codes<kWidth, kMiddle>(row, octet, head_dim, x);
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int) {
    const float step = simt::read<float>(meta);
    return {step, simt::fma(step, float{kMiddle}, simt::read<float>(meta + 4))};
  }
};

// kChannel: the metadata, [2, head_dim] f16, are the group's and not the row's.
template <int kWidth>
struct Channel {
  static constexpr int kBits = kWidth;
  static constexpr Scaling kScaling = Scaling::kChannel;
  static bool stores(const Encoding& e) {
    return e.format == Format::kChannel && e.bits == kWidth && e.group % 32 == 0;
  }
  static constexpr int meta_bytes(int) { return 0; }
  KV_DEVICE static void codes(const std::byte* row, int octet, float (&x)[kOctet], int head_dim) {
    dealt_codes<kWidth, 0>(row, octet, head_dim, x);
  }
};

}  // namespace kv::cuda
