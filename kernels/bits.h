// Integer codes of 1 to 16 bits, packed without gaps.
//
// Code i of a row occupies bits [i * bits, (i + 1) * bits) of the row's bytes, lowest bit first: at 4 bits,
// code 0 is the low nibble of byte 0. Rows have a multiple of 8 codes, so every 8 codes fill exactly `bits`
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

inline int64_t packed_bytes(int bits, int n) { return int64_t{bits} * n / 8; }

// n (a multiple of 8) codes, each below 2^bits, to packed_bytes(bits, n) bytes, and back. 1 to 8 and 16 bits
// have loops of their own, any other width goes through the general ones below.
void pack_codes(int bits, int n, const uint16_t* codes, std::byte* packed);
void unpack_codes(int bits, int n, const std::byte* packed, uint16_t* codes);

// The same for any width, and the meaning of the fast ones.
void pack_codes_general(int bits, int n, const uint16_t* codes, std::byte* packed);
void unpack_codes_general(int bits, int n, const std::byte* packed, uint16_t* codes);

}  // namespace kv
