#include "kernels/format/fp8.h"

#include <array>

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

// 1 KiB that stays in the L1 cache: fp8_to_f32's selects keep GCC 12 from making vector code of it.
template <Fp8 F>
constexpr std::array<float, 256> kValues = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) values[code] = fp8_to_f32<F>(static_cast<uint8_t>(code));
  return values;
}();

}  // namespace

template <Fp8 F>
void Fp8Format<F>::encode(const Encoding&, int head_dim, const float* rows, std::byte* data,
                          std::byte* meta) {
  const float scale = fp8_row_scale<F>(largest_fp8_bits(head_dim, rows)), inverse_scale = inverse(scale);
  for (int i = 0; i < head_dim; ++i) {
    data[i] = static_cast<std::byte>(fp8_row_code<F>(rows[i], inverse_scale));
  }
  store(meta, 0, scale);
}

template <Fp8 F>
void Fp8Format<F>::decode(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int,
                          int, float* out) {
  const float scale = load<float>(meta, 0);
  for (int i = 0; i < head_dim; ++i) out[i] = kValues<F>[static_cast<uint8_t>(data[i])] * scale;
}

template struct Fp8Format<kE4M3>;
template struct Fp8Format<kE5M2>;

}  // namespace kv
