// kFp8E4M3 and kFp8E5M2: a row of FP8 under one power of two.
#include <array>

#include "kernels/formats.h"
#include "kernels/math.h"
#include "kernels/quantise.h"

namespace kv {
namespace {

// Largest magnitude of a row beside infinity, as bits; those of a NaN are above all numbers'.
uint32_t largest_fp8_bits(int n, const float* row) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    uint32_t magnitude = magnitude_bits(row[i]);
    magnitude = magnitude == kInfinityBits ? 0 : magnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <Fp8 F>
void encode(int n, const float* row, std::byte* data, std::byte* meta) {
  const float scale = fp8_row_scale<F>(largest_fp8_bits(n, row)), inverse_scale = inverse(scale);
  for (int i = 0; i < n; ++i) data[i] = static_cast<std::byte>(fp8_row_code<F>(row[i], inverse_scale));
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
