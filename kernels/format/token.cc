#include "kernels/format/token.h"

#include <algorithm>

namespace kv {
namespace {

struct Extent {
  float low, high;
};

// Several minima and maxima at a time, which is what vector code wants. n is a multiple of 8.
Extent extent(int n, const float* x) {
  constexpr int kLanes = 8;
  float low[kLanes], high[kLanes];
  for (int l = 0; l < kLanes; ++l) low[l] = high[l] = x[l];
  for (int i = kLanes; i < n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
    }
  }
  return {*std::min_element(low, low + kLanes), *std::max_element(high, high + kLanes)};
}

void encode_symmetric(int bits, int n, const float* row, uint16_t* codes, std::byte* meta) {
  const float scale = symmetric_scale(largest_magnitude_bits(n, row), bits);
  const float inverse_scale = inverse(scale);
  for (int i = 0; i < n; ++i) codes[i] = symmetric_code(row[i], inverse_scale, bits);
  store(meta, 0, scale);
}

void encode_affine(int bits, int n, const float* row, uint16_t* codes, std::byte* meta) {
  const float top = top_code(bits);
  const Extent e = extent(n, row);
  const Grid grid = affine_grid(e.low, e.high, largest_magnitude_bits(n, row), bits);
  const float inverse_scale = inverse(grid.scale);
  for (int i = 0; i < n; ++i) codes[i] = nearest_code(row[i], grid, inverse_scale, top);
  store(meta, 0, grid.scale);
  store(meta, 1, grid.zero);
}

}  // namespace

std::string TokenFormat::name(const Encoding& e) {
  return "token" + std::to_string(e.bits) + (e.affine ? "" : "sym");
}

std::string TokenFormat::unsupported_reason(const Encoding& e, int) {
  if (e.affine || e.bits >= 2) return "";
  return "a symmetric code needs 2 bits or more (one bit would hold nothing but 0); affine has 1 bit";
}

std::vector<Encoding> TokenFormat::samples() {
  std::vector<Encoding> all;
  for (const bool affine : {false, true}) {
    for (const uint8_t bits : {8, 4, 2}) all.push_back({.format = kFormat, .bits = bits, .affine = affine});
  }
  return all;
}

void TokenFormat::encode(const Encoding& e, int head_dim, const float* rows, std::byte* data,
                         std::byte* meta) {
  uint16_t codes[kMaxHeadDim];
  (e.affine ? encode_affine : encode_symmetric)(e.bits, head_dim, rows, codes, meta);
  pack_codes(e.bits, head_dim, codes, data);
}

void TokenFormat::decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int,
                         int, float* out) {
  uint16_t codes[kMaxHeadDim];
  unpack_codes(e.bits, head_dim, data, codes);
  const float scale = load<float>(meta, 0);
  if (e.affine) {
    const float zero = load<float>(meta, 1);
    for (int i = 0; i < head_dim; ++i) out[i] = zero + static_cast<float>(codes[i]) * scale;
  } else {
    const int middle = 1 << (e.bits - 1);
    for (int i = 0; i < head_dim; ++i) out[i] = static_cast<float>(codes[i] - middle) * scale;
  }
}

}  // namespace kv
