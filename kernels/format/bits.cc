#include "kernels/format/bits.h"

#include <bit>
#include <cstring>

namespace kv {
namespace {

static_assert(std::endian::native == std::endian::little);

// The width is a constant of the compiler, which makes vector code of the inner loops.
template <int kBits>
void pack_interleaved(int n, const uint16_t* codes, std::byte* packed) {
  const int words = kBits * n / 32;
  for (int w = 0; w < words; ++w) {
    uint32_t word = 0;
    for (int slot = 0; slot < 32 / kBits; ++slot)
      word |= static_cast<uint32_t>(codes[slot * words + w]) << (slot * kBits);
    std::memcpy(packed + 4 * w, &word, 4);
  }
}

template <int kBits>
void unpack_interleaved(int n, const std::byte* packed, uint16_t* codes) {
  const int words = kBits * n / 32;
  for (int slot = 0; slot < 32 / kBits; ++slot, codes += words) {
    for (int w = 0; w < words; ++w) {
      uint32_t word;
      std::memcpy(&word, packed + 4 * w, 4);
      codes[w] = static_cast<uint16_t>((word >> (slot * kBits)) & ((1u << kBits) - 1u));
    }
  }
}

void pack_sequential(int bits, int n, const uint16_t* codes, std::byte* packed) {
  uint32_t pending = 0;  // bits not yet written, lowest first; at most 7 + 16 of them
  int count = 0;
  for (int i = 0; i < n; ++i) {
    pending |= static_cast<uint32_t>(codes[i]) << count;
    for (count += bits; count >= 8; count -= 8, pending >>= 8)
      *packed++ = static_cast<std::byte>(pending & 0xffu);
  }
}

void unpack_sequential(int bits, int n, const std::byte* packed, uint16_t* codes) {
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

}  // namespace

void pack_codes(int bits, int n, const uint16_t* codes, std::byte* packed) {
  if (!is_interleaved(bits, n)) return pack_sequential(bits, n, codes, packed);
  if (bits == 1) return pack_interleaved<1>(n, codes, packed);
  if (bits == 2) return pack_interleaved<2>(n, codes, packed);
  if (bits == 4) return pack_interleaved<4>(n, codes, packed);
  pack_interleaved<8>(n, codes, packed);
}

void unpack_codes(int bits, int n, const std::byte* packed, uint16_t* codes) {
  if (!is_interleaved(bits, n)) return unpack_sequential(bits, n, packed, codes);
  if (bits == 1) return unpack_interleaved<1>(n, packed, codes);
  if (bits == 2) return unpack_interleaved<2>(n, packed, codes);
  if (bits == 4) return unpack_interleaved<4>(n, packed, codes);
  unpack_interleaved<8>(n, packed, codes);
}

}  // namespace kv
