// The words of each format as the tensor cores' kernel reads them: codes as stored, and pairs of 16-bit numbers of each word.
//
// Tensor cores take two numbers a word. We choose which elements of a row share a word; both operands must agree. A pair is
// therefore made in place by one mask and one constant: codes i and i + kPairs, in the word's lower and upper half. Integer
// codes become binary16 without a slow conversion: they are put into the low bits of 1024, then 1024 and the middle of the
// codes are subtracted. All pairs are exact. Scales multiply queries, scores or weights, never an element.
#pragma once

#include "kernels/cuda/rows/pages.h"
#include "kernels/cuda/simt/simt.h"
#include "kernels/format/list.h"

namespace kv::cuda {

struct ScaleZero {
  float scale, zero;
};

// ---- numbers that tensor cores multiply ----

// kQueryParts: the parts that together have the precision of f32.
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

// Codes i and i + 16 / kWidth of a word, minus kMiddle. Bits that are not the lowest of their byte stay in place, as a multiple
// of the code, and are divided when 1024 is subtracted.
template <int kWidth, int kMiddle>
KV_DEVICE uint32_t integer_pair(uint32_t word, int i) {
  constexpr uint32_t kMask = ((1u << kWidth) - 1u) * 0x10001u, kBase = both_halves(1024), kSign = 0x80008000u;
  const int in_byte = kWidth * i % 8, byte = kWidth * i / 8;
  const uint32_t raised = simt::mask_or(word >> (8 * byte), kMask << in_byte, kBase);
  const uint32_t one_over = (static_cast<uint32_t>(15 - in_byte) << 10) * 0x10001u;
  const uint32_t offset = both_halves((1024u >> in_byte) + kMiddle);
  return simt::fma_half2(raised, one_over, offset | kSign);
}

// The same codes as bare bits: subnormal binary16 numbers, the codes times 2^-(14 + kWidth). They fill the top of the significand,
// since tensor cores align products as if a subnormal's leading zeros were digits, and cut off as many bits at the other end.
template <int kWidth>
KV_DEVICE uint32_t bare_pair(uint32_t word, int i) {
  constexpr int kPlace = 10 - kWidth;
  const int at = kWidth * i;
  return (at < kPlace ? word << (kPlace - at) : word >> (at - kPlace)) & ((1u << kWidth) - 1u) * 0x10001u
                                                                             << kPlace;
}
template <int kWidth>
inline constexpr float kBareUnit = static_cast<float>(1 << (14 + kWidth));

KV_HD constexpr int words_of(int bits, int head_dim) { return head_dim * bits / 32; }

// ---- the formats ----
// Each has stores(), kBits, its scaling, a row's number of `blocks` with one scale, the metadata's bytes a row, and element():
// the index in a row of code `code` of word `word`. Layouts and scales are those of the descriptors (kernels/format/). pair(),
// which tensor cores multiply, and scale() differ between K (`of_key`) and V.

// Defaults of most formats.
template <int kBits_>
struct PlainWords {
  static constexpr int kBits = kBits_;
  static constexpr float kKeyUnit = 1.0f;
  static constexpr int kKeyMiddle = 0;
  static constexpr bool kKeyZero = false, kValueZero = false;
  static constexpr int blocks(int) { return 1; }
  KV_DEVICE static ScaleZero scale(const std::byte*, int, bool) { return {1.0f, 0.0f}; }
};

template <class F>
struct FixedWords : PlainWords<F::kBits> {
  static constexpr Scaling kScaling = F::kScaling;
  static bool stores(const Encoding& e) { return e.format == F::kFormat; }
  static constexpr int meta_bytes(int head_dim) { return static_cast<int>(F::meta_bytes({}, head_dim)); }
  KV_HD static constexpr int element(int head_dim, int word, int code) {
    return F::element(head_dim, word, code);
  }
};

template <class Number_, class F>
struct Floats16 : FixedWords<F> {
  using Number = Number_;
  KV_DEVICE static uint32_t pair(uint32_t word, int, bool) { return word; }
};
using F32 = FixedWords<F32Format>;  // gives a tile's sizes alone
using F16 = Floats16<Half, F16Format>;
using Bf16 = Floats16<Bfloat, Bf16Format>;

// FP8 has a scale a row and no zero. E5M2 is the upper half of a binary16. The bits of an E4M3, a place lower, are a binary16
// of 1 / 256 of it, subnormals too; the scale takes that back. A NaN's would be a number, but no row has one as a code.
template <class F>
struct Fp8Words : FixedWords<F> {
  using Number = Half;
  static constexpr bool kE5m2 = F::kFormat == Fp8E5M2Format::kFormat, kShifts = !kE5m2 && !simt::kConvertsFp8;
  KV_DEVICE static uint32_t pair(uint32_t word, int i, bool) {
    const auto low = static_cast<uint32_t>(i), high = low + 2;
    if constexpr (kShifts) {
      const uint32_t upper = i == 0 ? word << 8 : word;
      return simt::mask_or(upper >> 1, 0x3f803f80u, upper & 0x80008000u);
    } else if constexpr (kE5m2) {
      return simt::permute_bytes(word, 0u, 0x0404u | low << 4 | high << 12);
    } else {
      return simt::e4m3_to_half2(simt::permute_bytes(word, 0u, low | high << 4));
    }
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int, bool) {
    return {simt::read<float>(meta) * (kShifts ? 256.0f : 1.0f), 0.0f};
  }
};
using E4m3 = Fp8Words<Fp8E4M3Format>;
using E5m2 = Fp8Words<Fp8E5M2Format>;

// ggml's formats: flipping the top bit of a signed code adds 2^(bits-1).
template <class F>
struct BlockWords : FixedWords<F> {
  using Number = Half;
  static constexpr float kKeyUnit = kBareUnit<F::kBits>;
  static constexpr int kKeyMiddle = 1 << (F::kBits - 1);
  static constexpr int blocks(int head_dim) { return head_dim / kGgmlBlock; }
  KV_DEVICE static uint32_t pair(uint32_t word, int i, bool of_key) {
    word ^= F::kSignBits;
    return of_key ? bare_pair<F::kBits>(word, i) : integer_pair<F::kBits, kKeyMiddle>(word, i);
  }
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int block, bool) {
    const float2 two = simt::unpack_half2(simt::read<uint32_t>(meta + block / 2 * 4));
    return {block % 2 ? two.y : two.x, 0.0f};
  }
};
struct Q8 : BlockWords<Q8_0Format> {};
struct Q4 : BlockWords<Q4_0Format> {};

// Interleaved codes of 8, 4 or 2 bits (kernels/format/bits.h). V's codes count from the middle of their range, so that little
// cancels when a zero point is applied to sums over all rows.
template <class F, int kWidth>
struct InterleavedWords : PlainWords<kWidth> {
  using Number = Half;
  static constexpr int kMiddle = 1 << (kWidth - 1);
  static constexpr Scaling kScaling = F::kScaling;
  static constexpr float kKeyUnit = kBareUnit<kWidth>;
  KV_DEVICE static uint32_t pair(uint32_t word, int i, bool of_key) {
    return of_key ? bare_pair<kWidth>(word, i) : integer_pair<kWidth, kMiddle>(word, i);
  }
  KV_HD static constexpr int element(int head_dim, int word, int code) {
    return code * words_of(kWidth, head_dim) + word;
  }
};

template <int kWidth, bool kAffine = true>
struct Token : InterleavedWords<TokenFormat, kWidth> {
  using Base = InterleavedWords<TokenFormat, kWidth>;
  static constexpr int kKeyMiddle = kAffine ? 0 : Base::kMiddle;
  static constexpr bool kKeyZero = kAffine, kValueZero = kAffine;
  static bool stores(const Encoding& e) {
    return e.format == TokenFormat::kFormat && e.affine == kAffine && e.bits == kWidth;
  }
  static constexpr int meta_bytes(int head_dim) {
    return static_cast<int>(TokenFormat::meta_bytes({.affine = kAffine}, head_dim));
  }
  // The zero point is the value of code 0; for keys without one, products start from it.
  KV_DEVICE static ScaleZero scale(const std::byte* meta, int, bool of_key) {
    const float step = simt::read<float>(meta);
    if constexpr (!kAffine) return {step, 0.0f};
    const float zero = simt::read<float>(meta + 4);
    return {step, of_key
                      ? zero
                      : simt::fma(step, static_cast<float>(Base::kMiddle), zero)};  // of V: the middle code's
  }
};

// The metadata, [2, head_dim] f16, belong to the group, not to the row.
template <int kWidth>
struct Channel : InterleavedWords<ChannelFormat, kWidth> {
  static bool stores(const Encoding& e) {
    return e.format == ChannelFormat::kFormat && e.bits == kWidth && e.group % 32 == 0;
  }
  static constexpr int meta_bytes(int) { return 0; }
};

}  // namespace kv::cuda
