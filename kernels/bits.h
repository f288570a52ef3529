// Integer codes of 1 to 16 bits, packed without gaps.
//
// Codes of 1, 2, 4 or 8 bits that fill whole 32-bit words are *dealt out*: of a row's W words, word w holds
// codes w, W + w, 2W + w, ... from its lowest bits up. A vector of words then yields, by one shift and one
// mask, codes of consecutive elements, whatever the vector's width: no code ever changes its lane. All other
// rows are *in sequence*: code i occupies bits [i * bits, (i + 1) * bits) of the row's bytes, lowest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/math.h"

namespace kv {

inline int64_t packed_bytes(int bits, int n) { return int64_t{bits} * n / 8; }

KV_HD inline bool is_dealt(int bits, int n) {
  return (bits == 1 || bits == 2 || bits == 4 || bits == 8) && bits * n % 32 == 0;
}

// The lowest bit of code i of a row of n: bit b is bit b % 8 of byte b / 8.
KV_HD inline int code_bit(int bits, int n, int i) {
  if (!is_dealt(bits, n)) return bits * i;
  const int words = bits * n / 32;
  return i % words * 32 + i / words * bits;
}

// n (a multiple of 8) codes, each below 2^bits, to packed_bytes(bits, n) bytes, and back.
void pack_codes(int bits, int n, const uint16_t* codes, std::byte* packed);
void unpack_codes(int bits, int n, const std::byte* packed, uint16_t* codes);

}  // namespace kv
