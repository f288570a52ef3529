// Integer codes of 1 to 16 bits, packed without gaps.
//
// Codes of 1, 2, 4 or 8 bits that fill whole 32-bit words are packed *interleaved*: of a row's W words, word w
// holds codes w, W + w, 2W + w, … from its lowest bits up. One shift and one mask of a vector of words then yield
// codes of consecutive elements, whatever the vector's width: no code ever changes its lane. For 4 bits, 64
// elements and so W = 8 words:
//
//            bits  0…3   4…7   8…11  12…15 16…19 20…23 24…27 28…31
//   word 0   code  0     8     16    24    32    40    48    56
//   word 1   code  1     9     17    25    33    41    49    57
//   …
//   word 7   code  7     15    23    31    39    47    55    63
//
// All other rows are packed *sequentially*: code i occupies bits [i * bits, (i + 1) * bits) of the row's bytes,
// lowest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/math.h"

namespace kv {

constexpr int64_t packed_bytes(int bits, int n) { return int64_t{bits} * n / 8; }

KV_HD inline bool is_interleaved(int bits, int n) {
  return (bits == 1 || bits == 2 || bits == 4 || bits == 8) && bits * n % 32 == 0;
}

// The lowest bit of code i of a row of n: bit b is bit b % 8 of byte b / 8.
KV_HD inline int code_bit(int bits, int n, int i) {
  if (!is_interleaved(bits, n)) return bits * i;
  const int words = bits * n / 32;
  return i % words * 32 + i / words * bits;
}

// Code i of a packed row of n.
KV_HD inline int read_code(int bits, int n, const std::byte* packed, int i) {
  const int bit = code_bit(bits, n, i), first = bit / 8;
  uint32_t bytes = 0;
  for (int at = first; 8 * at < bit + bits; ++at) {
    bytes |= static_cast<uint32_t>(packed[at]) << (8 * (at - first));
  }
  return static_cast<int>(bytes >> bit % 8 & ((1u << bits) - 1u));
}

// n (a multiple of 8) codes, each below 2^bits, to packed_bytes(bits, n) bytes, and back.
void pack_codes(int bits, int n, const uint16_t* codes, std::byte* packed);
void unpack_codes(int bits, int n, const std::byte* packed, uint16_t* codes);

}  // namespace kv
