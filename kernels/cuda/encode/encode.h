// Encodes rows into stored units, a warp a unit; lane l holds octet l of a row. The bytes equal those of the scalar encoders of
// kernels/format/: scales and codes come from its functions, and extremes do not depend on the order.
#pragma once

#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

struct UnitTask {
  StoredRow to;  // the unit's first row
  int32_t head_dim;
  const std::byte* rows;  // [group, head_dim]
  bool half;              // f16, from KIVI's residual buffer, else f32
};

KV_DEVICE int first_of_lane() { return simt::lane() * kOctet; }
KV_DEVICE bool has_octet(const UnitTask& task) { return first_of_lane() < task.head_dim; }

KV_DEVICE float element_of(const UnitTask& task, int row, int element) {
  const int64_t at = int64_t{row} * task.head_dim + element;
  return task.half ? f16_to_f32(load<uint16_t>(task.rows, at)) : load<float>(task.rows, at);
}

// The lane's octet of a row. Lanes beyond the row repeat another lane's, which changes no extreme.
KV_DEVICE void load_octet(const UnitTask& task, int row, float (&x)[kOctet]) {
  for (int i = 0; i < kOctet; ++i) x[i] = element_of(task, row, first_of_lane() % task.head_dim + i);
}

template <Fp8 F>
KV_DEVICE void encode_row(Fp8Format<F>, const UnitTask& task, const float (&x)[kOctet]) {
  uint32_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    if (bits != kInfinityBits) largest = simt::larger(largest, bits);
  }
  const float scale = fp8_row_scale<F>(simt::largest_of_lanes(largest, simt::kWarp));
  if (!has_octet(task)) return;
  for (int i = 0; i < kOctet; ++i) {
    store(task.to.data, first_of_lane() + i, fp8_row_code<F>(x[i], inverse(scale)));
  }
  if (simt::lane() == 0) store(task.to.meta, 0, scale);
}

inline constexpr int kBlockLanes = kGgmlBlock / kOctet;

KV_DEVICE void encode_row(Q8_0Format, const UnitTask& task, const float (&x)[kOctet]) {
  const BlockScale scale = q8_0_scale(simt::largest_of_lanes(largest_magnitude_bits(kOctet, x), kBlockLanes));
  if (!has_octet(task)) return;
  for (int i = 0; i < kOctet; ++i) store(task.to.data, first_of_lane() + i, q8_0_code(x[i], scale.inverse));
  if (simt::lane() % kBlockLanes == 0) store(task.to.meta, simt::lane() / kBlockLanes, scale.stored);
}

// The block's first element of the largest magnitude, with its sign: the maximum of keys with the magnitude in the upper bits,
// then the element's earliness, then the sign.
KV_DEVICE float first_largest_of_block(const float (&x)[kOctet]) {
  uint64_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t sign = std::bit_cast<uint32_t>(x[i]) >> 31;
    const auto early = static_cast<uint32_t>(kGgmlBlock - 1 - (first_of_lane() + i) % kGgmlBlock);
    largest = simt::larger(largest, uint64_t{magnitude_bits(x[i])} << 6 | early << 1 | sign);
  }
  largest = simt::largest_of_lanes(largest, kBlockLanes);
  return std::bit_cast<float>(static_cast<uint32_t>(largest >> 6) | static_cast<uint32_t>(largest) << 31);
}

// Byte j of a block has code j in its low nibble and code j + 16 in its high one, so half of the lanes store bytes.
KV_DEVICE void encode_row(Q4_0Format, const UnitTask& task, const float (&x)[kOctet]) {
  const BlockScale scale = q4_0_scale(first_largest_of_block(x));
  const int in_block = first_of_lane() % kGgmlBlock, block = first_of_lane() / kGgmlBlock;
  if (!has_octet(task) || in_block >= Q4_0Format::kHalfBlock) return;
  if (in_block == 0) store(task.to.meta, block, scale.stored);
  for (int i = 0; i < kOctet; ++i) {
    const float above = element_of(task, 0, first_of_lane() + i + Q4_0Format::kHalfBlock);
    const unsigned pair = q4_0_code(x[i], scale.inverse) | q4_0_code(above, scale.inverse) << 4;
    store(task.to.data, block * Q4_0Format::kHalfBlock + in_block + i, static_cast<uint8_t>(pair));
  }
}

// Stores a row's codes code_of(element, x), packed as in kernels/format/bits.h. Eight codes of any width fill whole bytes, so lanes
// never share a byte.
template <class CodeOf>
KV_DEVICE void store_codes(const UnitTask& task, int row, CodeOf code_of) {
  if (!has_octet(task)) return;
  const int bits = task.to.encoding.bits;
  std::byte* to = task.to.data + row * packed_bytes(bits, task.head_dim) + simt::lane() * bits;
  uint32_t pending = 0;
  int count = 0;
  for (int i = 0; i < kOctet; ++i) {
    const int element = packed_code(bits, task.head_dim, first_of_lane() + i);
    pending |= static_cast<uint32_t>(code_of(element, element_of(task, row, element))) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8) *to++ = static_cast<std::byte>(pending);
  }
}

KV_DEVICE void encode_row(TokenFormat, const UnitTask& task, const float (&x)[kOctet]) {
  const int bits = task.to.encoding.bits;
  const uint32_t largest = simt::largest_of_lanes(largest_magnitude_bits(kOctet, x), simt::kWarp);
  float low = x[0], high = x[0];
  for (int i = 1; i < kOctet; ++i) {
    low = -simt::larger(-low, -x[i]);
    high = simt::larger(high, x[i]);
  }
  low = -simt::largest_of_lanes(-low, simt::kWarp);
  high = simt::largest_of_lanes(high, simt::kWarp);
  const Grid grid = task.to.encoding.affine ? affine_grid(low, high, largest, bits)
                                            : Grid{.zero = 0.0f, .scale = symmetric_scale(largest, bits)};
  store_codes(task, 0, [&](int, float value) {
    return task.to.encoding.affine ? nearest_code(value, grid, inverse(grid.scale), top_code(bits))
                                   : symmetric_code(value, inverse(grid.scale), bits);
  });
  if (simt::lane() != 0) return;
  store(task.to.meta, 0, grid.scale);
  if (task.to.encoding.affine) store(task.to.meta, 1, grid.zero);
}

// KIVI's keys: a lane has eight channels and reads the group's rows twice, for the grids and for the codes.
KV_DEVICE void encode_channel_unit(const UnitTask& task) {
  const int bits = task.to.encoding.bits;
  float x[kOctet], low[kOctet], high[kOctet];
  uint32_t largest[kOctet] = {};
  load_octet(task, 0, low);
  load_octet(task, 0, high);
  for (int row = 0; row < task.to.encoding.group; ++row) {
    load_octet(task, row, x);
    for (int i = 0; i < kOctet; ++i) {
      low[i] = -simt::larger(-low[i], -x[i]);
      high[i] = simt::larger(high[i], x[i]);
      largest[i] = simt::larger(largest[i], magnitude_bits(x[i]));
    }
  }
  for (int i = 0; has_octet(task) && i < kOctet; ++i) {
    store_channel_grid(bits, task.head_dim, task.to.meta, first_of_lane() + i,
                       channel_grid(low[i], high[i], largest[i], bits));
  }
  simt::sync_warp();  // a lane stores codes of other lanes' channels
  for (int row = 0; row < task.to.encoding.group; ++row) {
    store_codes(task, row, [&](int channel, float value) {
      const Grid grid = stored_channel_grid(bits, task.head_dim, task.to.meta, channel);
      return nearest_code(value, grid, inverse(grid.scale), top_code(bits));
    });
  }
}

// All lanes of a warp call this together.
KV_DEVICE void encode(const UnitTask& task) {
  visit_format(GpuFormats(), task.to.encoding.format, [&](auto format) {
    using F = decltype(format);
    if constexpr (F::kScaling == Scaling::kChannel) {
      encode_channel_unit(task);
    } else {
      float x[kOctet];
      load_octet(task, 0, x);
      if constexpr (F::kScaling != Scaling::kNone) {
        encode_row(format, task, x);
      } else if (has_octet(task)) {
        for (int i = 0; i < kOctet; ++i) store(task.to.data, first_of_lane() + i, F::store_element(x[i]));
      }
    }
  });
}

}  // namespace kv::cuda
