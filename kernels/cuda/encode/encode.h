// Rows to stored units, a warp a unit: lane l holds octet l of a row. The bytes are those of the scalar encoders of
// kernels/format/, since scales and codes come from its functions and maxima do not depend on their order.
#pragma once

#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/simt/simt.h"
#include "kernels/format/bits.h"

namespace kv::cuda {

// What a warp encodes, and where to. `rows`: [group, head_dim] f32, or f16 where they waited in KIVI's residual buffer.
struct UnitTask {
  Encoding encoding;
  int32_t head_dim;
  const std::byte* rows;
  bool half;
  std::byte* data;
  std::byte* meta;
};

KV_DEVICE int first_of_lane() { return simt::lane() * kOctet; }

KV_DEVICE float element_of(const UnitTask& task, int row, int element) {
  const int64_t at = int64_t{row} * task.head_dim + element;
  return task.half ? f16_to_f32(load<uint16_t>(task.rows, at)) : load<float>(task.rows, at);
}

// The lane's octet of a row; zeros for lanes beyond the row.
KV_DEVICE void load_octet(const UnitTask& task, int row, float (&x)[kOctet]) {
  const int first = first_of_lane();
  for (int i = 0; i < kOctet; ++i) x[i] = first < task.head_dim ? element_of(task, row, first + i) : 0.0f;
}

// The largest of `lanes` neighbouring lanes, a power of two; all of them get it.
KV_DEVICE uint32_t largest_of_lanes(uint32_t x, int lanes) {
  for (int mask = 1; mask < lanes; mask *= 2) {
    const uint32_t other = simt::shuffle_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

KV_DEVICE uint32_t largest_magnitude(const float (&x)[kOctet]) {
  uint32_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

struct Extent {
  float low, high;
};

KV_DEVICE Extent extent_of_row(const float (&x)[kOctet], int head_dim) {
  const float first = simt::shuffle(x[0], 0);  // of the row, for the lanes that hold nothing of it
  Extent e{first, first};
  if (first_of_lane() < head_dim) {
    for (int i = 0; i < kOctet; ++i) {
      e.low = x[i] < e.low ? x[i] : e.low;
      e.high = x[i] > e.high ? x[i] : e.high;
    }
  }
  for (int mask = 1; mask < simt::kWarp; mask *= 2) {
    const float low = simt::shuffle_xor(e.low, mask), high = simt::shuffle_xor(e.high, mask);
    e.low = low < e.low ? low : e.low;
    e.high = high > e.high ? high : e.high;
  }
  return e;
}

template <Fp8 F>
KV_DEVICE void encode_row(Fp8Format<F>, const UnitTask& task, const float (&x)[kOctet]) {
  uint32_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    if (bits != kInfinityBits && bits > largest) largest = bits;
  }
  const float scale = fp8_row_scale<F>(largest_of_lanes(largest, simt::kWarp));
  const float inverse_scale = inverse(scale);
  if (first_of_lane() >= task.head_dim) return;
  for (int i = 0; i < kOctet; ++i) {
    store(task.data, first_of_lane() + i, fp8_row_code<F>(x[i], inverse_scale));
  }
  if (simt::lane() == 0) store(task.meta, 0, scale);
}

inline constexpr int kBlockLanes = kGgmlBlock / kOctet;

KV_DEVICE void encode_row(Q8_0Format, const UnitTask& task, const float (&x)[kOctet]) {
  const BlockScale scale = q8_0_scale(largest_of_lanes(largest_magnitude(x), kBlockLanes));
  if (first_of_lane() >= task.head_dim) return;
  for (int i = 0; i < kOctet; ++i) store(task.data, first_of_lane() + i, q8_0_code(x[i], scale.inverse));
  if (simt::lane() % kBlockLanes == 0) store(task.meta, simt::lane() / kBlockLanes, scale.stored);
}

// The block's first element of the largest magnitude, with its sign.
KV_DEVICE float first_largest_of_block(const float (&x)[kOctet]) {
  const uint32_t largest = largest_of_lanes(largest_magnitude(x), kBlockLanes);
  float own = 0.0f;
  bool found = false;
  for (int i = 0; i < kOctet; ++i) {
    if (!found && magnitude_bits(x[i]) == largest) {
      own = x[i];
      found = true;
    }
  }
  const int block_lane = simt::lane() / kBlockLanes * kBlockLanes;
  float first = 0.0f;
  bool done = false;
  for (int lane = 0; lane < kBlockLanes; ++lane) {
    const int theirs = simt::shuffle(static_cast<int>(found), block_lane + lane);
    const float value = simt::shuffle(own, block_lane + lane);
    if (!done && theirs) {
      first = value;
      done = true;
    }
  }
  return first;
}

// Byte j of a block has code j in its low and code j + 16 in its high nibble: two lanes write what the four
// of a block hold.
KV_DEVICE void encode_row(Q4_0Format, const UnitTask& task, const float (&x)[kOctet]) {
  const BlockScale scale = q4_0_scale(first_largest_of_block(x));
  uint32_t codes = 0;
  for (int i = 0; i < kOctet; ++i) codes |= q4_0_code(x[i], scale.inverse) << (4 * i);
  const uint32_t high = simt::shuffle_xor(codes, kBlockLanes / 2);
  const int in_block = simt::lane() % kBlockLanes, block = simt::lane() / kBlockLanes;
  if (first_of_lane() >= task.head_dim) return;
  if (in_block == 0) store(task.meta, block, scale.stored);
  if (in_block >= kBlockLanes / 2) return;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t pair = ((codes >> (4 * i)) & 15u) | ((high >> (4 * i)) & 15u) << 4;
    store(task.data, block * (kGgmlBlock / 2) + in_block * kOctet + i, static_cast<uint8_t>(pair));
  }
}

// The words of a row whose codes are interleaved (kernels/format/bits.h), each made by one lane:
// code_of(element, x).
template <class CodeOf>
KV_DEVICE void store_interleaved(const UnitTask& task, int row, CodeOf code_of) {
  const int bits = task.encoding.bits, words = bits * task.head_dim / 32;
  for (int w = simt::lane(); w < words; w += simt::kWarp) {
    uint32_t word = 0;
    for (int slot = 0; slot < 32 / bits; ++slot) {
      const int element = slot * words + w;
      word |= static_cast<uint32_t>(code_of(element, element_of(task, row, element))) << (slot * bits);
    }
    store(task.data, int64_t{row} * words + w, word);
  }
}

KV_DEVICE void encode_row(TokenFormat, const UnitTask& task, const float (&x)[kOctet]) {
  const int bits = task.encoding.bits;
  const uint32_t largest = largest_of_lanes(largest_magnitude(x), simt::kWarp);
  const Extent extent = extent_of_row(x, task.head_dim);
  Grid grid{0.0f, 0.0f};
  if (task.encoding.affine) {
    grid = affine_grid(extent.low, extent.high, largest, bits);
  } else {
    grid.scale = symmetric_scale(largest, bits);
  }
  const float inverse_scale = inverse(grid.scale);
  const auto code_of = [&](int, float value) {
    return task.encoding.affine ? nearest_code(value, grid, inverse_scale, top_code(bits))
                                : symmetric_code(value, inverse_scale, bits);
  };
  if (is_interleaved(bits, task.head_dim)) {
    store_interleaved(task, 0, code_of);
  } else if (first_of_lane() < task.head_dim) {
    uint16_t codes[kOctet];
    for (int i = 0; i < kOctet; ++i) codes[i] = code_of(i, x[i]);
    pack_octet(bits, codes, task.data + first_of_lane() * bits / 8);
  }
  if (simt::lane() != 0) return;
  store(task.meta, 0, grid.scale);
  if (task.encoding.affine) store(task.meta, 1, grid.zero);
}

// The grids of a lane's eight channels over the group's rows -> the unit's metadata.
KV_DEVICE void store_channel_grids(const UnitTask& task, Grid (&grid)[kOctet]) {
  const int first = first_of_lane(), bits = task.encoding.bits;
  float x[kOctet], low[kOctet], high[kOctet];
  uint32_t largest[kOctet] = {};
  load_octet(task, 0, low);
  load_octet(task, 0, high);
  for (int row = 0; row < task.encoding.group; ++row) {
    load_octet(task, row, x);
    for (int i = 0; i < kOctet; ++i) {
      low[i] = x[i] < low[i] ? x[i] : low[i];
      high[i] = x[i] > high[i] ? x[i] : high[i];
      largest[i] = magnitude_bits(x[i]) > largest[i] ? magnitude_bits(x[i]) : largest[i];
    }
  }
  for (int i = 0; i < kOctet; ++i) {
    grid[i] = channel_grid(low[i], high[i], largest[i], bits);
    if (half_meta(bits)) {
      store(task.meta, first + i, f32_to_f16(grid[i].scale));
      store(task.meta, task.head_dim + first + i, f32_to_f16(grid[i].zero));
    } else {
      store(task.meta, first + i, grid[i].scale);
      store(task.meta, task.head_dim + first + i, grid[i].zero);
    }
  }
}

// KIVI's keys: a lane has eight channels and goes over the group's rows twice.
KV_DEVICE void encode_channel_unit(const UnitTask& task) {
  const int first = first_of_lane(), bits = task.encoding.bits;
  Grid grid[kOctet];
  if (first < task.head_dim) store_channel_grids(task, grid);
  const bool interleaved = is_interleaved(bits, task.head_dim);
  if (interleaved) simt::sync_warp();  // lanes that make words need the grids of others
  for (int row = 0; row < task.encoding.group; ++row) {
    if (interleaved) {
      store_interleaved(task, row, [&](int channel, float value) {
        const Grid own = stored_channel_grid(bits, task.head_dim, task.meta, channel);  // as stored: exact
        return nearest_code(value, own, inverse(own.scale), top_code(bits));
      });
    } else if (first < task.head_dim) {
      float x[kOctet];
      load_octet(task, row, x);
      uint16_t codes[kOctet];
      for (int i = 0; i < kOctet; ++i)
        codes[i] = nearest_code(x[i], grid[i], inverse(grid[i].scale), top_code(bits));
      pack_octet(bits, codes, task.data + (int64_t{row} * task.head_dim + first) * bits / 8);
    }
  }
}

// All lanes of a warp call this together.
KV_DEVICE void encode(const UnitTask& task) {
  visit_format(GpuFormats(), task.encoding.format, [&](auto format) {
    using F = decltype(format);
    if constexpr (F::kScaling == Scaling::kChannel) {
      encode_channel_unit(task);
    } else {
      float x[kOctet];
      load_octet(task, 0, x);
      if constexpr (F::kScaling != Scaling::kNone) {
        encode_row(format, task, x);
      } else if (first_of_lane() < task.head_dim) {
        for (int i = 0; i < kOctet; ++i) store(task.data, first_of_lane() + i, F::store_element(x[i]));
      }
    }
  });
}

}  // namespace kv::cuda
