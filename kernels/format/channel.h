// kChannel: integer codes under one grid a channel, over `group` rows: KIVI's keys (Liu et al. 2024,
// arXiv:2402.02750).
//
//             data of a unit                     meta of a unit        element i                 range
//   bits <= 8 group x D codes, row after row     D scales, D zeros f16 zero[i] + code * scale[i] 32752
//   bits > 8  the same                           D scales, D zeros f32 the same                  2^126
//
// Scales as affine kToken has them. f16 is what KIVI stores (at 2 bits and 32 rows f32 would cost as much as the
// codes), with the zero rounded down, so that a constant channel is exact if f16 has its value. Beyond 8 bits an
// f16 scale would be coarser than the codes.
#pragma once

#include "kernels/format/uniform_format.h"

namespace kv {

inline constexpr float kLimitF16 = 32752.0f;

// True if a unit's scales and zero points are f16.
KV_HD constexpr bool half_meta(int bits) { return bits <= 8; }

// The largest f16 that is not above x, and the smallest above a non-negative one; |x| <= 65504.
KV_HD inline uint16_t half_below(float x) {
  const uint16_t h = f32_to_f16(x);
  if (f16_to_f32(h) <= x) return h;
  if ((h & 0x7fff) == 0) return 0x8001;  // below zero: the smallest negative one
  return h & 0x8000 ? static_cast<uint16_t>(h + 1) : static_cast<uint16_t>(h - 1);
}

// The grid that spans [low, high], as f16 holds it: from the f16 at or below `low`, with the nearest scale, or
// the one above if the nearest falls short of `high` by more than half a step (only where the scale is
// subnormal).
KV_HD inline Grid grid_f16(float low, float high, float top) {
  low = clamp_number(low, -kLimitF16, kLimitF16) + 0.0f;
  high = clamp_number(high, -kLimitF16, kLimitF16);
  const float zero = f16_to_f32(half_below(low));
  if (high == zero) return {zero, 0.0f};
  const float span = high - zero;
  uint16_t scale = f32_to_f16(span / top);
  if (span > f16_to_f32(scale) * (top + 0.5f)) ++scale;
  return {zero, f16_to_f32(scale)};
}

KV_HD inline Grid channel_grid(float low, float high, uint32_t largest_bits, int bits) {
  if (!half_meta(bits)) return affine_grid(low, high, largest_bits, bits);
  return largest_bits < kInfinityBits ? grid_f16(low, high, top_code(bits)) : poisoned_grid();
}

// A channel's grid from a unit's metadata.
KV_HD inline Grid stored_channel_grid(int bits, int head_dim, const std::byte* meta, int channel) {
  if (half_meta(bits)) {
    return {f16_to_f32(load<uint16_t>(meta, head_dim + channel)), f16_to_f32(load<uint16_t>(meta, channel))};
  }
  return {load<float>(meta, head_dim + channel), load<float>(meta, channel)};
}

// Exact, for a grid that channel_grid() made.
KV_HD inline void store_channel_grid(int bits, int head_dim, std::byte* meta, int channel, const Grid& grid) {
  if (half_meta(bits)) {
    store(meta, channel, f32_to_f16(grid.scale));
    store(meta, head_dim + channel, f32_to_f16(grid.zero));
  } else {
    store(meta, channel, grid.scale);
    store(meta, head_dim + channel, grid.zero);
  }
}

// The grids of all channels of a unit.
struct ChannelGrids {
  float scale[kMaxHeadDim], zero[kMaxHeadDim];
};

struct ChannelFormat : UniformFormat {
  static constexpr Format kFormat = Format::kChannel;
  static constexpr Scaling kScaling = Scaling::kChannel;
  static std::string name(const Encoding& e);
  static std::string unsupported_reason(const Encoding&, int) { return ""; }
  static constexpr int64_t meta_bytes(const Encoding& e, int head_dim) {
    return 2 * (half_meta(e.bits) ? 2 : 4) * int64_t{head_dim};
  }
  KV_HD static float element_of(const Encoding& e, int head_dim, const std::byte* meta, int i, int code) {
    const Grid grid = stored_channel_grid(e.bits, head_dim, meta, i);
    return grid.zero + static_cast<float>(code) * grid.scale;
  }
  static std::vector<Encoding> samples();
  static void encode(const Encoding& e, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  // Scales are read once for all the rows.
  static void decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
  // The same for grids that were read already: decode() but for the conversion of f16.
  static void decode_on(const ChannelGrids& grids, const Encoding& e, int head_dim, const std::byte* data,
                        int first, int count, float* out);
};

}  // namespace kv
