#include "kernels/format/channel.h"

#include <algorithm>

namespace kv {
namespace {

void load_grids(const Encoding& encoding, int n, const std::byte* meta, ChannelGrids& grids) {
  for (int i = 0; i < n; ++i) {
    const Grid grid = stored_channel_grid(encoding.bits, n, meta, i);
    grids.scale[i] = grid.scale;
    grids.zero[i] = grid.zero;
  }
}

void store_grids(const Encoding& encoding, int n, const ChannelGrids& grids, std::byte* meta) {
  for (int i = 0; i < n; ++i) {
    store_channel_grid(encoding.bits, n, meta, i, {.zero = grids.zero[i], .scale = grids.scale[i]});
  }
}

void make_channel_grids(const Encoding& encoding, int n, const float* rows, ChannelGrids& grids) {
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

std::string ChannelFormat::name(const Encoding& e) {
  return "channel" + std::to_string(e.bits) + "g" + std::to_string(e.group);
}

std::vector<Encoding> ChannelFormat::samples() {
  std::vector<Encoding> all;
  for (const uint8_t bits : {8, 4, 2}) {
    all.push_back({.format = kFormat, .bits = bits, .group = 32, .affine = true});
  }
  return all;
}

void ChannelFormat::encode(const Encoding& e, int head_dim, const float* rows, std::byte* data,
                           std::byte* meta) {
  ChannelGrids grids;
  make_channel_grids(e, head_dim, rows, grids);
  store_grids(e, head_dim, grids, meta);
  float inverse_scale[kMaxHeadDim];
  for (int i = 0; i < head_dim; ++i) inverse_scale[i] = inverse(grids.scale[i]);
  uint16_t codes[kMaxHeadDim];
  const float top = top_code(e.bits);
  for (int r = 0; r < e.group; ++r, rows += head_dim, data += packed_bytes(e.bits, head_dim)) {
    for (int i = 0; i < head_dim; ++i) {
      codes[i] = nearest_code(rows[i], {grids.zero[i], grids.scale[i]}, inverse_scale[i], top);
    }
    pack_codes(e.bits, head_dim, codes, data);
  }
}

void ChannelFormat::decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta,
                           int first, int count, float* out) {
  ChannelGrids grids;
  load_grids(e, head_dim, meta, grids);
  decode_on(grids, e, head_dim, data, first, count, out);
}

void ChannelFormat::decode_on(const ChannelGrids& grids, const Encoding& e, int head_dim,
                              const std::byte* data, int first, int count, float* out) {
  uint16_t codes[kMaxHeadDim];
  const int64_t row_bytes = packed_bytes(e.bits, head_dim);
  data += first * row_bytes;
  for (int r = 0; r < count; ++r, data += row_bytes, out += head_dim) {
    unpack_codes(e.bits, head_dim, data, codes);
    for (int i = 0; i < head_dim; ++i) {
      out[i] = grids.zero[i] + static_cast<float>(codes[i]) * grids.scale[i];
    }
  }
}

}  // namespace kv
