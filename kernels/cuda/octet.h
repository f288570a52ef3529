// Eight consecutive elements of a row: what one lane holds. Eight codes in sequence fill whole bytes at every
// width, so lanes never share a byte; of codes that are dealt out, each lies in another word.
#pragma once

#include "kernels/bits.h"
#include "kernels/cuda/pages.h"
#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv::cuda {

inline constexpr int kOctet = 8;

// Codes that lie in sequence (kernels/bits.h), to and from the octet's own `bits` bytes.
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

// The codes of elements [first, first + 8) of a row. Where they are dealt out, each has a word of its own.
KV_HD inline void read_codes(int bits, int head_dim, const std::byte* row, int first,
                             uint16_t (&codes)[kOctet]) {
  if (!is_dealt(bits, head_dim)) return unpack_octet(bits, row + first * bits / 8, codes);
  const int words = bits * head_dim / 32;
  for (int i = 0; i < kOctet; ++i) {
    const uint32_t word = load<uint32_t>(row, (first + i) % words);
    codes[i] = static_cast<uint16_t>((word >> ((first + i) / words * bits)) & ((1u << bits) - 1u));
  }
}

// Elements [first, first + 8) of a row, exactly as kernels/encoding.h decodes them.
KV_HD inline void decode_codes(const Encoding& encoding, int head_dim, const StoredRow& row, int first,
                               float (&x)[kOctet]) {
  const int bits = encoding.bits;
  uint16_t code[kOctet];
  read_codes(bits, head_dim, row.data + int64_t{row.row} * head_dim * bits / 8, first, code);
  const bool per_channel = encoding.format == Format::kChannel;
  const float scale = per_channel ? 0.0f : load<float>(row.meta, 0);
  const float zero = !per_channel && encoding.affine ? load<float>(row.meta, 1) : 0.0f;
  const int middle = 1 << (bits - 1);
  for (int i = 0; i < kOctet; ++i) {
    if (!per_channel) {
      x[i] = encoding.affine ? zero + static_cast<float>(code[i]) * scale
                             : static_cast<float>(code[i] - middle) * scale;
    } else if (half_meta(bits)) {
      x[i] = f16_to_f32(load<uint16_t>(row.meta, head_dim + first + i)) +
             static_cast<float>(code[i]) * f16_to_f32(load<uint16_t>(row.meta, first + i));
    } else {
      x[i] = load<float>(row.meta, head_dim + first + i) +
             static_cast<float>(code[i]) * load<float>(row.meta, first + i);
    }
  }
}

KV_HD inline void decode_octet(const Encoding& encoding, int head_dim, const StoredRow& row, int first,
                               float (&x)[kOctet]) {
  const std::byte* data = row.data;
  for (int i = 0; i < kOctet; ++i) {
    const int at = first + i;
    switch (encoding.format) {
      case Format::kF32:
        x[i] = load<float>(data, at);
        break;
      case Format::kF16:
        x[i] = f16_to_f32(load<uint16_t>(data, at));
        break;
      case Format::kBf16:
        x[i] = bf16_to_f32(load<uint16_t>(data, at));
        break;
      case Format::kFp8E4M3:
        x[i] = fp8_to_f32<kE4M3>(load<uint8_t>(data, at)) * load<float>(row.meta, 0);
        break;
      case Format::kFp8E5M2:
        x[i] = fp8_to_f32<kE5M2>(load<uint8_t>(data, at)) * load<float>(row.meta, 0);
        break;
      case Format::kQ8_0:
        x[i] = static_cast<float>(load<int8_t>(data, at)) *
               f16_to_f32(load<uint16_t>(row.meta, at / kGgmlBlock));
        break;
      case Format::kQ4_0: {
        const int in_block = at % kGgmlBlock, half = kGgmlBlock / 2;
        const int pair = load<uint8_t>(data, at / kGgmlBlock * half + in_block % half);
        const int code = in_block < half ? pair & 15 : pair >> 4;
        x[i] = static_cast<float>(code - 8) * f16_to_f32(load<uint16_t>(row.meta, at / kGgmlBlock));
        break;
      }
      case Format::kToken:
      case Format::kChannel:
        return decode_codes(encoding, head_dim, row, first, x);
    }
  }
}

}  // namespace kv::cuda
