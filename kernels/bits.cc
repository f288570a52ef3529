#include "kernels/bits.h"

#include <bit>
#include <cstring>

namespace kv {
namespace {

static_assert(std::endian::native == std::endian::little);

// kBits divides 8: a byte holds whole codes, so each is a shift and a mask. The count is a constant of the
// compiler, which makes vector code of it.
template <int kBits>
void pack_in_bytes(int n, const uint16_t* codes, std::byte* packed) {
  constexpr int kPerByte = 8 / kBits;
  for (int i = 0; i < n / kPerByte; ++i) {
    unsigned byte = 0;
    for (int j = 0; j < kPerByte; ++j) byte |= static_cast<unsigned>(codes[i * kPerByte + j]) << (j * kBits);
    packed[i] = static_cast<std::byte>(byte);
  }
}

template <int kBits>
void unpack_in_bytes(int n, const std::byte* packed, uint16_t* codes) {
  constexpr int kPerByte = 8 / kBits;
  for (int i = 0; i < n / kPerByte; ++i) {
    const unsigned byte = static_cast<unsigned>(packed[i]);
    for (int j = 0; j < kPerByte; ++j) {
      codes[i * kPerByte + j] = static_cast<uint16_t>((byte >> (j * kBits)) & ((1u << kBits) - 1u));
    }
  }
}

// kBits up to 7: 8 codes are kBits bytes, which fit one 64-bit word (of a little-endian machine).
template <int kBits>
void pack_in_words(int n, const uint16_t* codes, std::byte* packed) {
  for (; n > 0; n -= 8, codes += 8, packed += kBits) {
    uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= static_cast<uint64_t>(codes[j]) << (j * kBits);
    std::memcpy(packed, &word, kBits);
  }
}

template <int kBits>
void unpack_in_words(int n, const std::byte* packed, uint16_t* codes) {
  for (; n > 0; n -= 8, codes += 8, packed += kBits) {
    uint64_t word = 0;
    // Byte by byte: a copy of 3 or 5 bytes would go through memory, and wait there for its own stores.
    for (int b = 0; b < kBits; ++b) word |= static_cast<uint64_t>(packed[b]) << (8 * b);
    for (int j = 0; j < 8; ++j, word >>= kBits) codes[j] = static_cast<uint16_t>(word & ((1u << kBits) - 1u));
  }
}

}  // namespace

void pack_codes_general(int bits, int n, const uint16_t* codes, std::byte* packed) {
  uint32_t pending = 0;  // bits not yet written, lowest first; at most 7 + 16 of them
  int count = 0;
  for (int i = 0; i < n; ++i) {
    pending |= static_cast<uint32_t>(codes[i]) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8)
      *packed++ = static_cast<std::byte>(pending & 0xffu);
  }
}

void unpack_codes_general(int bits, int n, const std::byte* packed, uint16_t* codes) {
  const uint32_t mask = (1u << bits) - 1u;
  uint32_t pending = 0;
  int count = 0;
  for (int i = 0; i < n; ++i) {
    for (; count < bits; count += 8) pending |= static_cast<uint32_t>(*packed++) << count;
    codes[i] = static_cast<uint16_t>(pending & mask);
    pending >>= bits;
    count -= bits;
  }
}

void pack_codes(int bits, int n, const uint16_t* codes, std::byte* packed) {
  switch (bits) {
    case 1:
      return pack_in_words<1>(n, codes, packed);
    case 2:
      return pack_in_bytes<2>(n, codes, packed);
    case 3:
      return pack_in_words<3>(n, codes, packed);
    case 4:
      return pack_in_bytes<4>(n, codes, packed);
    case 5:
      return pack_in_words<5>(n, codes, packed);
    case 6:
      return pack_in_words<6>(n, codes, packed);
    case 7:
      return pack_in_words<7>(n, codes, packed);
    case 8:
      return pack_in_bytes<8>(n, codes, packed);
    case 16:
      std::memcpy(packed, codes, 2 * static_cast<size_t>(n));
      return;
    default:
      pack_codes_general(bits, n, codes, packed);
  }
}

void unpack_codes(int bits, int n, const std::byte* packed, uint16_t* codes) {
  switch (bits) {
    case 1:
      return unpack_in_words<1>(n, packed, codes);
    case 2:
      return unpack_in_bytes<2>(n, packed, codes);
    case 3:
      return unpack_in_words<3>(n, packed, codes);
    case 4:
      return unpack_in_bytes<4>(n, packed, codes);
    case 5:
      return unpack_in_words<5>(n, packed, codes);
    case 6:
      return unpack_in_words<6>(n, packed, codes);
    case 7:
      return unpack_in_words<7>(n, packed, codes);
    case 8:
      return unpack_in_bytes<8>(n, packed, codes);
    case 16:
      std::memcpy(codes, packed, 2 * static_cast<size_t>(n));
      return;
    default:
      unpack_codes_general(bits, n, packed, codes);
  }
}

}  // namespace kv
