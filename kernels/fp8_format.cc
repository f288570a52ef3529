// kFp8E4M3 and kFp8E5M2: a row of FP8 under one power of two.
#include <algorithm>
#include <array>

#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

// Largest finite element of a row, as bits; FP8 itself keeps what is not finite.
uint32_t largest_finite_bits(int n, const float* row) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    uint32_t magnitude = std::bit_cast<uint32_t>(row[i]) & 0x7fffffffu;
    magnitude = magnitude < kInfinityBits ? magnitude : 0;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// The smallest power of two under which the row's largest magnitude, rounded to FP8's mantissa, is in range.
// Looking at it rounded makes the choice the same for a row and for what is decoded of it.
template <Fp8 F>
float row_scale(int n, const float* row) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr uint32_t kHalf = 1u << (kShift - 1);
  constexpr uint32_t kMantissa = (1u << F.mantissa_bits) - 1u;
  constexpr int kTopExponent = (F.largest >> F.mantissa_bits) - F.bias;
  // 1.75 * 2^127, the largest that both formats can scale to and back without overflow.
  const uint32_t largest = std::min(largest_finite_bits(n, row), 0x7f600000u);
  const uint32_t rounded = (largest + kHalf - 1u + ((largest >> kShift) & 1u)) >> kShift;
  int exponent = static_cast<int>(rounded >> F.mantissa_bits) - 127 - kTopExponent;
  if ((rounded & kMantissa) > (F.largest & kMantissa)) ++exponent;
  return std::bit_cast<float>(static_cast<uint32_t>(std::max(exponent, -126) + 127) << 23);
}

template <Fp8 F>
void encode(int n, const float* row, std::byte* data, std::byte* meta) {
  const float scale = row_scale<F>(n, row);
  const float inverse = 1.0f / scale;  // exact
  for (int i = 0; i < n; ++i) data[i] = static_cast<std::byte>(f32_to_fp8<F>(row[i] * inverse));
  store(meta, 0, scale);
}

// 1 KiB that stays in the L1 cache: fp8_to_f32's selects keep GCC 12 from making vector code of it.
template <Fp8 F>
constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) values[code] = fp8_to_f32<F>(static_cast<uint8_t>(code));
  return values;
}();

template <Fp8 F>
void decode(int n, const std::byte* data, const std::byte* meta, float* row) {
  const float scale = load<float>(meta, 0);
  for (int i = 0; i < n; ++i) row[i] = kValues<F>[static_cast<uint8_t>(data[i])] * scale;
}

}  // namespace

void encode_fp8(Format format, int n, const float* row, std::byte* data, std::byte* meta) {
  if (format == Format::kFp8E4M3) return encode<kE4M3>(n, row, data, meta);
  encode<kE5M2>(n, row, data, meta);
}

void decode_fp8(Format format, int n, const std::byte* data, const std::byte* meta, float* row) {
  if (format == Format::kFp8E4M3) return decode<kE4M3>(n, data, meta, row);
  decode<kE5M2>(n, data, meta, row);
}

}  // namespace kv
