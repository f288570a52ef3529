// kToken and kChannel: integer codes on a uniform grid. One grid a row, or one a channel over a group of
// rows.
#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/bits.h"
#include "kernels/cpu/convert.h"
#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

// Limits of what is stored: half the largest metadata value or less, so that max - min is finite and so is
// every product of a code and a scale.
constexpr float kLimitF32 = 0x1p126f;
constexpr float kLimitF16 = 32752.0f;
constexpr float kSmallest = 0x1p-126f;  // the smallest scale beside 0, so that its inverse is finite

bool half_meta(const Encoding& encoding) { return encoding.bits <= 8; }

// element = zero + code * scale, code = 0 … top.
struct Grid {
  float zero, scale;
};

constexpr Grid kPoisoned{0.0f, std::numeric_limits<float>::quiet_NaN()};

float inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// Comparisons are written so that NaN goes to 0.
uint16_t nearest_code(float x, const Grid& grid, float inverse_scale, float top) {
  float code = (x - grid.zero) * inverse_scale;
  code = code > 0.0f ? code : 0.0f;
  code = code < top ? code : top;
  return static_cast<uint16_t>(nearest_even(code));
}

// The grid that spans [low, high], as f32 holds it. + 0.0f: a row of -0 and one of +0 are stored alike.
Grid grid_f32(float low, float high, float top) {
  low = std::clamp(low, -kLimitF32, kLimitF32) + 0.0f;
  high = std::clamp(high, -kLimitF32, kLimitF32);
  if (high == low) return {low, 0.0f};
  const double step = (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(top);
  return {low, std::max(static_cast<float>(step), kSmallest)};
}

// The largest f16 that is not above x, and the smallest above a non-negative one; |x| <= 65504.
uint16_t half_below(float x) {
  const uint16_t h = f32_to_f16(x);
  if (f16_to_f32(h) <= x) return h;
  if ((h & 0x7fff) == 0) return 0x8001;  // below zero: the smallest negative one
  return h & 0x8000 ? static_cast<uint16_t>(h + 1) : static_cast<uint16_t>(h - 1);
}

// The grid that spans [low, high], as f16 holds it: from the f16 at or below `low`, with the nearest scale,
// or the one above if the nearest falls short of `high` by more than half a step (only where the scale is
// subnormal).
Grid grid_f16(float low, float high, float top) {
  low = std::clamp(low, -kLimitF16, kLimitF16) + 0.0f;
  high = std::clamp(high, -kLimitF16, kLimitF16);
  const float zero = f16_to_f32(half_below(low));
  if (high == zero) return {zero, 0.0f};
  const float span = high - zero;
  uint16_t scale = f32_to_f16(span / top);
  if (span > f16_to_f32(scale) * (top + 0.5f)) ++scale;
  return {zero, f16_to_f32(scale)};
}

float top_code(int bits) { return static_cast<float>((1 << bits) - 1); }

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
  const int middle = 1 << (bits - 1);
  const float top = static_cast<float>(middle - 1);
  const uint32_t largest = largest_magnitude_bits(n, row);
  float scale = kPoisoned.scale;
  if (largest < kInfinityBits) {
    const float magnitude = std::min(std::bit_cast<float>(largest), kLimitF32);
    scale = magnitude == 0.0f ? 0.0f : std::max(magnitude / top, kSmallest);
  }
  const float inverse_scale = inverse(scale);
  for (int i = 0; i < n; ++i) {
    float code = row[i] * inverse_scale;
    code = code > -top ? code : -top;  // NaN goes to a number
    code = code < top ? code : top;
    codes[i] = static_cast<uint16_t>(nearest_even(code) + middle);
  }
  store(meta, 0, scale);
}

void encode_affine(int bits, int n, const float* row, uint16_t* codes, std::byte* meta) {
  const float top = top_code(bits);
  const Extent e = extent(n, row);
  const Grid grid = largest_magnitude_bits(n, row) < kInfinityBits ? grid_f32(e.low, e.high, top) : kPoisoned;
  const float inverse_scale = inverse(grid.scale);
  for (int i = 0; i < n; ++i) codes[i] = nearest_code(row[i], grid, inverse_scale, top);
  store(meta, 0, grid.scale);
  store(meta, 1, grid.zero);
}

// scale [n] and zero [n] of a kChannel unit.
struct ChannelMeta {
  float scale[kMaxHeadDim], zero[kMaxHeadDim];

  void load_from(const Encoding& encoding, int n, const std::byte* meta) {
    if (half_meta(encoding)) {
      convert_f16_to_f32(meta, scale, n);
      convert_f16_to_f32(meta + 2 * n, zero, n);
    } else {
      std::memcpy(scale, meta, sizeof(float) * static_cast<size_t>(n));
      std::memcpy(zero, meta + 4 * n, sizeof(float) * static_cast<size_t>(n));
    }
  }
  void store_to(const Encoding& encoding, int n, std::byte* meta) const {
    for (int i = 0; i < n; ++i) {
      if (half_meta(encoding)) {  // exact: grid_f16 made them
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
      const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
      magnitude[i] = bits > magnitude[i] ? bits : magnitude[i];
    }
  }
  const float top = top_code(encoding.bits);
  for (int i = 0; i < n; ++i) {
    Grid grid = kPoisoned;
    if (magnitude[i] < kInfinityBits) {
      grid = half_meta(encoding) ? grid_f16(low[i], high[i], top) : grid_f32(low[i], high[i], top);
    }
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
  return 2 * (half_meta(encoding) ? 2 : 4) * int64_t{n};
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
