// kToken and kChannel: integer codes on a uniform grid. One grid a row, or one a channel over a group of
// rows.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/bits.h"
#include "kernels/cpu/convert.h"
#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

struct Extent {
  float low, high;
};

// Several minima and maxima side by side, which is what vector code wants. n is a multiple of 8.
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

// scale [n] and zero [n] of a kChannel unit.
struct ChannelMeta {
  float scale[kMaxHeadDim], zero[kMaxHeadDim];

  void load_from(const Encoding& encoding, int n, const std::byte* meta) {
    if (half_meta(encoding.bits)) {
      convert_f16_to_f32(meta, scale, n);
      convert_f16_to_f32(meta + 2 * n, zero, n);
    } else {
      std::memcpy(scale, meta, sizeof(float) * static_cast<size_t>(n));
      std::memcpy(zero, meta + 4 * n, sizeof(float) * static_cast<size_t>(n));
    }
  }
  void store_to(const Encoding& encoding, int n, std::byte* meta) const {
    for (int i = 0; i < n; ++i) {
      if (half_meta(encoding.bits)) {  // exact: grid_f16 made them
        store(meta, i, f32_to_f16(scale[i]));
        store(meta, n + i, f32_to_f16(zero[i]));
      } else {
        store(meta, i, scale[i]);
        store(meta, n + i, zero[i]);
      }
    }
  }
};

void make_channel_grids(const Encoding& encoding, int n, const float* rows, ChannelMeta& grids) {
  float low[kMaxHeadDim], high[kMaxHeadDim];
  uint32_t magnitude[kMaxHeadDim] = {};
  std::copy_n(rows, n, low);
  std::copy_n(rows, n, high);
  for (int r = 0; r < encoding.group; ++r) {
    const float* x = rows + int64_t{r} * n;
    for (int i = 0; i < n; ++i) {
      low[i] = x[i] < low[i] ? x[i] : low[i];
      high[i] = x[i] > high[i] ? x[i] : high[i];
      const uint32_t bits = magnitude_bits(x[i]);
      magnitude[i] = bits > magnitude[i] ? bits : magnitude[i];
    }
  }
  for (int i = 0; i < n; ++i) {
    const Grid grid = channel_grid(low[i], high[i], magnitude[i], encoding.bits);
    grids.scale[i] = grid.scale;
    grids.zero[i] = grid.zero;
  }
}

}  // namespace

void encode_token(const Encoding& encoding, int n, const float* row, std::byte* data, std::byte* meta) {
  uint16_t codes[kMaxHeadDim];
  const auto encode = encoding.affine ? encode_affine : encode_symmetric;
  encode(encoding.bits, n, row, codes, meta);
  pack_codes(encoding.bits, n, codes, data);
}

void decode_token(const Encoding& encoding, int n, const std::byte* data, const std::byte* meta, float* row) {
  uint16_t codes[kMaxHeadDim];
  unpack_codes(encoding.bits, n, data, codes);
  const float scale = load<float>(meta, 0);
  if (encoding.affine) {
    const float zero = load<float>(meta, 1);
    for (int i = 0; i < n; ++i) row[i] = zero + static_cast<float>(codes[i]) * scale;
  } else {
    const int middle = 1 << (encoding.bits - 1);
    for (int i = 0; i < n; ++i) row[i] = static_cast<float>(codes[i] - middle) * scale;
  }
}

int64_t channel_meta_bytes(const Encoding& encoding, int n) {
  return 2 * (half_meta(encoding.bits) ? 2 : 4) * int64_t{n};
}

void encode_channel(const Encoding& encoding, int n, const float* rows, std::byte* data, std::byte* meta) {
  ChannelMeta grids;
  make_channel_grids(encoding, n, rows, grids);
  grids.store_to(encoding, n, meta);
  float inverse_scale[kMaxHeadDim];
  for (int i = 0; i < n; ++i) inverse_scale[i] = inverse(grids.scale[i]);
  uint16_t codes[kMaxHeadDim];
  const float top = top_code(encoding.bits);
  for (int r = 0; r < encoding.group; ++r, rows += n, data += packed_bytes(encoding.bits, n)) {
    for (int i = 0; i < n; ++i) {
      codes[i] = nearest_code(rows[i], {grids.zero[i], grids.scale[i]}, inverse_scale[i], top);
    }
    pack_codes(encoding.bits, n, codes, data);
  }
}

void decode_channel(const Encoding& encoding, int n, const std::byte* data, const std::byte* meta, int first,
                    int count, float* out) {
  ChannelMeta grids;
  grids.load_from(encoding, n, meta);
  uint16_t codes[kMaxHeadDim];
  const int64_t row_bytes = packed_bytes(encoding.bits, n);
  data += first * row_bytes;
  for (int r = 0; r < count; ++r, data += row_bytes, out += n) {
    unpack_codes(encoding.bits, n, data, codes);
    for (int i = 0; i < n; ++i) out[i] = grids.zero[i] + static_cast<float>(codes[i]) * grids.scale[i];
  }
}

}  // namespace kv
