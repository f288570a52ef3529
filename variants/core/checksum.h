// CRC-32C (Castagnoli, as in iSCSI and ext4), eight bytes a step ("slicing-by-8", Kounavis and Berry 2005).
// Finds every error burst of up to 32 bits, so every altered byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kv {

// table[k][b]: the remainder of byte b followed by k zero bytes.
inline constexpr std::array<std::array<uint32_t, 256>, 8> kCrcTable = [] {
  std::array<std::array<uint32_t, 256>, 8> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
  }
  return table;
}();

// The checksum of what `crc` covers (0: nothing) followed by these bytes.
inline uint32_t extend_crc32c(uint32_t crc, const std::byte* data, size_t bytes) {
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);  // little-endian
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kCrcTable[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; bytes > 0; --bytes, ++data)
    crc = (crc >> 8) ^ kCrcTable[0][(crc ^ static_cast<uint32_t>(*data)) & 0xff];
  return ~crc;
}

}  // namespace kv
