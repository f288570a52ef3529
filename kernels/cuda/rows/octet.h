// Eight consecutive elements of a row: what one lane holds. Eight codes in sequence fill whole bytes at every
// width, so lanes never share a byte; of interleaved codes, each lies in another word.
#pragma once

#include "kernels/cuda/rows/pages.h"
#include "kernels/format/bits.h"
#include "kernels/format/list.h"
#include "kernels/math.h"

namespace kv::cuda {

inline constexpr int kOctet = 8;

// Codes that are packed sequentially (kernels/format/bits.h), to and from the octet's own `bits` bytes.
KV_HD inline void pack_octet(int bits, const uint16_t (&codes)[kOctet], std::byte* to) {
  uint32_t pending = 0;
  int count = 0;
  for (int i = 0; i < kOctet; ++i) {
    pending |= static_cast<uint32_t>(codes[i]) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8) *to++ = static_cast<std::byte>(pending);
  }
}

KV_HD inline void unpack_octet(int bits, const std::byte* from, uint16_t (&codes)[kOctet]) {
  uint32_t pending = 0;
  int count = 0;
  for (int i = 0; i < kOctet; ++i) {
    for (; count < bits; count += 8) pending |= static_cast<uint32_t>(*from++) << count;
    codes[i] = static_cast<uint16_t>(pending & ((1u << bits) - 1u));
    pending >>= bits;
    count -= bits;
  }
}

// The codes of elements [first, first + 8) of a row. Where they are interleaved, each has a word of its own.
KV_HD inline void read_codes(int bits, int head_dim, const std::byte* row, int first,
                             uint16_t (&codes)[kOctet]) {
  if (!is_interleaved(bits, head_dim)) return unpack_octet(bits, row + first * bits / 8, codes);
  const int words = bits * head_dim / 32;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t word = load<uint32_t>(row, (first + i) % words);
    codes[i] = static_cast<uint16_t>((word >> ((first + i) / words * bits)) & ((1u << bits) - 1u));
  }
}

// Elements [first, first + 8) of a row of a uniform format, exactly as it decodes them.
KV_HD inline void decode_codes(TokenFormat, const Encoding& encoding, int head_dim, const StoredRow& row,
                               int first, float (&x)[kOctet]) {
  const int bits = encoding.bits, middle = 1 << (bits - 1);
  uint16_t code[kOctet];
  read_codes(bits, head_dim, row.data + int64_t{row.row} * head_dim * bits / 8, first, code);
  const float scale = load<float>(row.meta, 0), zero = encoding.affine ? load<float>(row.meta, 1) : 0.0f;
  for (int i = 0; i < kOctet; ++i) {
    x[i] = encoding.affine ? zero + static_cast<float>(code[i]) * scale
                           : static_cast<float>(code[i] - middle) * scale;
  }
}

KV_HD inline void decode_codes(ChannelFormat, const Encoding& encoding, int head_dim, const StoredRow& row,
                               int first, float (&x)[kOctet]) {
  const int bits = encoding.bits;
  uint16_t code[kOctet];
  read_codes(bits, head_dim, row.data + int64_t{row.row} * head_dim * bits / 8, first, code);
  for (int i = 0; i < kOctet; ++i) {
    const Grid grid = stored_channel_grid(bits, head_dim, row.meta, first + i);
    x[i] = grid.zero + static_cast<float>(code[i]) * grid.scale;
  }
}

// Elements [first, first + 8) of a row of any format, exactly as kernels/encode.h decodes them.
KV_HD inline void decode_octet(const Encoding& encoding, int head_dim, const StoredRow& row, int first,
                               float (&x)[kOctet]) {
  visit_format(GpuFormats(), encoding.format, [&](auto format) {
    using F = decltype(format);
    if constexpr (F::kBits == 0) {
      decode_codes(format, encoding, head_dim, row, first, x);
    } else {
      for (int i = 0; i < kOctet; ++i) x[i] = F::load_element(row.data, row.meta, first + i);
    }
  });
}

}  // namespace kv::cuda
