// Encodes rows into stored units, a warp a unit; lane l holds octet l of a row. The bytes equal those of the scalar encoders of
// kernels/format/: scales and codes come from its functions, and extremes do not depend on the order.
//
// Memory is read and written as wide as it is aligned: rows to 16 bytes, and octets of b-bit codes, which are b bytes, to the
// largest power of two in b.
#pragma once

#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

struct UnitTask {
  StoredRow to;  // the unit's first row
  int32_t head_dim;
  const std::byte* rows;  // [group, head_dim], aligned to 16
  bool half;              // f16, from KIVI's residual buffer, else f32
};

KV_DEVICE int first_of_lane() { return simt::lane() * kOctet; }
KV_DEVICE bool has_octet(const UnitTask& task) { return first_of_lane() < task.head_dim; }

// The lane's octet of a row. Lanes beyond the row repeat another lane's, which changes no extreme.
KV_DEVICE void load_octet(const UnitTask& task, int row, float (&x)[kOctet]) {
  const int64_t at = int64_t{row} * task.head_dim + first_of_lane() % task.head_dim;
  if (task.half) {
    const auto word = simt::read<uint4>(task.rows + 2 * at);
    const uint32_t pair[] = {word.x, word.y, word.z, word.w};
    for (int i = 0; i < kOctet; ++i) {
      const float2 two = simt::unpack_half2(pair[i / 2]);
      x[i] = i % 2 ? two.y : two.x;
    }
    return;
  }
  for (int i = 0; i < kOctet; i += 4) {
    const auto four = simt::read<float4>(task.rows + 4 * (at + i));
    x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
  }
}

// Writes eight codes, the first in the lowest bits.
template <int kBits>
KV_DEVICE void write_octet(std::byte* to, const uint32_t (&code)[kOctet]) {
  uint32_t word[(kOctet * kBits + 31) / 32] = {};
  for (int i = 0; i < kOctet; ++i) word[i * kBits / 32] |= code[i] << i * kBits % 32;
  if constexpr (kBits == 2) {
    simt::write(to, static_cast<uint16_t>(word[0]));
  } else if constexpr (kBits == 4) {
    simt::write(to, word[0]);
  } else if constexpr (kBits == 8) {
    simt::write(to, uint2{word[0], word[1]});
  } else {
    for (int i = 0; i < kBits / 4; i += 4)
      simt::write(to + 4 * i, uint4{word[i], word[i + 1], word[i + 2], word[i + 3]});
  }
}

// Stores the lane's codes of a row.
template <int kBits>
KV_DEVICE void store_octet(const UnitTask& task, int row, const uint32_t (&code)[kOctet]) {
  std::byte* const to = task.to.data + row * packed_bytes(kBits, task.head_dim) + simt::lane() * kBits;
  if (has_octet(task)) write_octet<kBits>(to, code);
}

template <Fp8 F>
KV_DEVICE void encode_row(Fp8Format<F>, const UnitTask& task, const float (&x)[kOctet]) {
  uint32_t largest = 0;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    if (bits != kInfinityBits) largest = simt::larger(largest, bits);
  }
  const float scale = fp8_row_scale<F>(simt::largest_of_lanes(largest, simt::kWarp));
  uint32_t code[kOctet];
  for (int i = 0; i < kOctet; ++i) code[i] = fp8_row_code<F>(x[i], inverse(scale));
  store_octet<8>(task, 0, code);
  if (simt::lane() == 0) simt::write(task.to.meta, scale);
}

inline constexpr int kBlockLanes = kGgmlBlock / kOctet;

// The scale of the lane's block, which the block's first lane stores.
KV_DEVICE void store_scale(const UnitTask& task, const BlockScale& scale) {
  if (!has_octet(task) || simt::lane() % kBlockLanes != 0) return;
  simt::write(task.to.meta + simt::lane() / kBlockLanes * sizeof scale.stored, scale.stored);
}

KV_DEVICE void encode_row(Q8_0Format, const UnitTask& task, const float (&x)[kOctet]) {
  const BlockScale scale = q8_0_scale(simt::largest_of_lanes(largest_magnitude_bits(kOctet, x), kBlockLanes));
  uint32_t code[kOctet];
  for (int i = 0; i < kOctet; ++i) code[i] = static_cast<uint8_t>(q8_0_code(x[i], scale.inverse));
  store_octet<8>(task, 0, code);
  store_scale(task, scale);
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
  constexpr int kHalfLanes = Q4_0Format::kHalfBlock / kOctet;
  uint32_t own = 0;  // a nibble each
  for (int i = 0; i < kOctet; ++i) own |= q4_0_code(x[i], scale.inverse) << 4 * i;
  const uint32_t above = simt::shuffle_xor(own, kHalfLanes);
  store_scale(task, scale);
  const int in_block = simt::lane() % kBlockLanes, block = simt::lane() / kBlockLanes;
  if (!has_octet(task) || in_block >= kHalfLanes) return;
  uint32_t pair[kOctet];
  for (int i = 0; i < kOctet; ++i) pair[i] = (own >> 4 * i & 15) | (above >> 4 * i & 15) << 4;
  write_octet<8>(task.to.data + block * Q4_0Format::kHalfBlock + in_block * kOctet, pair);
}

// Gives each lane the codes that interleaved packing (kernels/format/bits.h) stores in its octet; other lanes have made them.
// The element of the code at a place is the inverse of code_bit(), by shifts.
KV_DEVICE void interleave(int bits, int head_dim, uint32_t (&code)[kOctet]) {
  const int shift = bits == 8 ? 2 : bits == 4 ? 3 : bits == 2 ? 4 : 5;  // log2 of a word's codes
  uint64_t own = 0;                                                     // a byte a code
  for (int i = 0; i < kOctet; ++i) own |= uint64_t{code[i]} << 8 * i;
  for (int i = 0; i < kOctet; ++i) {
    const int at = first_of_lane() + i, in_word = at & ((1 << shift) - 1);
    const int element = in_word * (head_dim >> shift) + (at >> shift);
    code[i] = static_cast<uint32_t>(simt::shuffle(own, element / kOctet) >> 8 * (element % kOctet)) & 0xffu;
  }
}

// Stores a row's codes, packed as in kernels/format/bits.h; all lanes take part. Eight codes of any width fill whole bytes, so
// lanes never share a byte.
KV_DEVICE void store_codes(const UnitTask& task, int row, uint32_t (&code)[kOctet]) {
  const int bits = task.to.encoding.bits;
  if (is_interleaved(bits, task.head_dim)) interleave(bits, task.head_dim, code);
  if (bits == 8) return store_octet<8>(task, row, code);
  if (bits == 4) return store_octet<4>(task, row, code);
  if (bits == 2) return store_octet<2>(task, row, code);
  if (!has_octet(task)) return;
  std::byte* const to = task.to.data + row * packed_bytes(bits, task.head_dim) + simt::lane() * bits;
  uint64_t first = 0, second = 0;  // four codes each
  for (int i = 0; i < kOctet / 2; ++i) {
    first |= uint64_t{code[i]} << bits * i;
    second |= uint64_t{code[i + kOctet / 2]} << bits * i;
  }
  const uint64_t low = bits < 16 ? first | second << 4 * bits : first, high = second >> (64 - 4 * bits);
  KV_ROLLED
  for (int i = 0; i < bits; ++i) to[i] = static_cast<std::byte>((i < 8 ? low : high) >> 8 * (i % 8));
}

// A token's grid, in all lanes; one of them stores it.
KV_DEVICE Grid token_grid(const UnitTask& task, const float (&x)[kOctet]) {
  const int bits = task.to.encoding.bits;
  const uint32_t largest = simt::largest_of_lanes(largest_magnitude_bits(kOctet, x), simt::kWarp);
  float low = x[0], high = x[0];
  for (int i = 1; i < kOctet; ++i) {
    low = -simt::larger(-low, -x[i]);
    high = simt::larger(high, x[i]);
  }
  low = -simt::largest_of_lanes(-low, simt::kWarp);
  high = simt::largest_of_lanes(high, simt::kWarp);
  const bool affine = task.to.encoding.affine;
  const Grid grid = affine ? affine_grid(low, high, largest, bits)
                           : Grid{.zero = 0.0f, .scale = symmetric_scale(largest, bits)};
  if (simt::lane() == 0) simt::write(task.to.meta, grid.scale);
  if (simt::lane() == 0 && affine) simt::write(task.to.meta + sizeof(float), grid.zero);
  return grid;
}

// Stores the grids of the lane's channels as kernels/format/channel.h has them: all scales, then all zeros.
template <int kBits>
KV_DEVICE void store_grids(const UnitTask& task, const Grid (&grid)[kOctet]) {
  const auto bits_of = [](float x) {
    return kBits == 16 ? uint32_t{f32_to_f16(x)} : std::bit_cast<uint32_t>(x);
  };
  uint32_t scale[kOctet], zero[kOctet];
  for (int i = 0; i < kOctet; ++i) scale[i] = bits_of(grid[i].scale), zero[i] = bits_of(grid[i].zero);
  if (!has_octet(task)) return;
  std::byte* const to = task.to.meta + simt::lane() * kBits;
  write_octet<kBits>(to, scale);
  write_octet<kBits>(to + packed_bytes(kBits, task.head_dim), zero);
}

// The grids of the lane's channels, over the rows of a group, of which x is the first; stores them.
KV_DEVICE void channel_grids(const UnitTask& task, float (&x)[kOctet], Grid (&grid)[kOctet]) {
  const int bits = task.to.encoding.bits;
  float low[kOctet], high[kOctet];
  uint32_t largest[kOctet] = {};
  for (int i = 0; i < kOctet; ++i) low[i] = high[i] = x[i];
  KV_ROLLED
  for (int row = 0; row < task.to.encoding.group; ++row) {
    load_octet(task, row, x);
    for (int i = 0; i < kOctet; ++i) {
      low[i] = -simt::larger(-low[i], -x[i]);
      high[i] = simt::larger(high[i], x[i]);
      largest[i] = simt::larger(largest[i], magnitude_bits(x[i]));
    }
  }
  for (int i = 0; i < kOctet; ++i) grid[i] = channel_grid(low[i], high[i], largest[i], bits);
  half_meta(bits) ? store_grids<16>(task, grid) : store_grids<32>(task, grid);
}

// Tokens, and groups of KIVI's keys, whose rows are read twice: for the grids and for the codes. The two share a loop, which
// holds the packing of codes, so that the kernel has it once.
KV_DEVICE void encode_codes(const UnitTask& task, float (&x)[kOctet]) {
  const Encoding& e = task.to.encoding;
  const bool of_channels = e.format == Format::kChannel;
  Grid grid[kOctet];
  if (of_channels) {
    channel_grids(task, x, grid);
  } else {
    const Grid of_token = token_grid(task, x);
    for (Grid& one : grid) one = of_token;
  }
  KV_ROLLED
  for (int row = 0; row < e.group; ++row) {
    if (of_channels) load_octet(task, row, x);
    uint32_t code[kOctet];
    for (int i = 0; i < kOctet; ++i) {
      const float by = inverse(grid[i].scale);
      code[i] = of_channels || e.affine ? nearest_code(x[i], grid[i], by, top_code(e.bits))
                                        : symmetric_code(x[i], by, e.bits);
    }
    store_codes(task, row, code);
  }
}

// All lanes of a warp call this together.
KV_DEVICE void encode(const UnitTask& task) {
  float x[kOctet];
  load_octet(task, 0, x);
  visit_format(GpuFormats(), task.to.encoding.format, [&](auto format) {
    using F = decltype(format);
    if constexpr (F::kScaling == Scaling::kNone) {
      uint32_t code[kOctet];
      for (int i = 0; i < kOctet; ++i) {
        const auto stored = F::store_element(x[i]);
        if constexpr (F::kBits == 32) {
          code[i] = std::bit_cast<uint32_t>(stored);
        } else {
          code[i] = stored;
        }
      }
      store_octet<F::kBits>(task, 0, code);
    } else if constexpr (F::kBits > 0) {
      encode_row(format, task, x);
    }
  });
  if (task.to.encoding.format == Format::kToken || task.to.encoding.format == Format::kChannel)
    encode_codes(task, x);
}

}  // namespace kv::cuda
