// One encoded unit in memory of its own, and the formats that tests of encodings go through.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/encoding.h"
#include "kernels/math.h"

namespace kv::test {

inline constexpr int kHeadDims[] = {8, 24, 32, 64, 96, 128, 256, 512};

inline Encoding token(int bits, bool affine) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
}
inline Encoding channel(int bits, int group) {
  return {.format = Format::kChannel,
          .bits = static_cast<uint8_t>(bits),
          .group = static_cast<uint16_t>(group),
          .affine = true};
}
inline constexpr Encoding kFp8s[] = {{.format = Format::kFp8E4M3, .bits = 8},
                                     {.format = Format::kFp8E5M2, .bits = 8}};
inline constexpr Encoding kQ8{.format = Format::kQ8_0, .bits = 8}, kQ4{.format = Format::kQ4_0, .bits = 4};

inline std::vector<Encoding> quantised() {
  std::vector<Encoding> all{kFp8s[0], kFp8s[1], kQ8, kQ4};
  for (int bits = 1; bits <= 16; ++bits) {
    all.push_back(token(bits, true));
    if (bits > 1) all.push_back(token(bits, false));
    all.push_back(channel(bits, 8));
  }
  all.push_back(channel(2, 32));
  all.push_back(channel(4, 256));
  return all;
}

// One unit, its planes in memory of their exact sizes so that the sanitizers see a step outside.
struct Unit {
  Unit(const Encoding& e, int d)
      : encoding(e),
        head_dim(d),
        data(static_cast<size_t>(unit_data_bytes(e, d))),
        meta(static_cast<size_t>(unit_meta_bytes(e, d))) {}
  Unit(const Encoding& e, int d, const std::vector<float>& rows) : Unit(e, d) {
    encode_unit(e, d, rows.data(), data.data(), meta.data());
  }
  std::vector<float> decoded() const {
    std::vector<float> rows(static_cast<size_t>(encoding.group * head_dim));
    for (int r = 0; r < encoding.group; ++r) {
      decode_row(encoding, head_dim, data.data(), meta.data(), r, rows.data() + r * head_dim);
    }
    return rows;
  }
  float meta_f32(int i) const {
    float x;
    std::memcpy(&x, meta.data() + 4 * i, 4);
    return x;
  }
  float meta_f16(int i) const {
    uint16_t h;
    std::memcpy(&h, meta.data() + 2 * i, 2);
    return f16_to_f32(h);
  }
  Encoding encoding;
  int head_dim;
  std::vector<std::byte> data, meta;
};

}  // namespace kv::test
