// One encoded unit in memory of its own, and the formats and rows that tests of encodings go through.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/encode.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "kernels/math.h"
#include "tests/normal.h"

namespace kv::test {

inline constexpr int kHeadDims[] = {8, 24, 32, 64, 96, 128, 256, 512};

constexpr Encoding token(int bits, bool affine) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
}
constexpr Encoding channel(int bits, int group = 32) {
  return {.format = Format::kChannel,
          .bits = static_cast<uint8_t>(bits),
          .group = static_cast<uint16_t>(group),
          .affine = true};
}
inline constexpr Encoding kF32{}, kF16{.format = Format::kF16, .bits = 16},
    kBf16{.format = Format::kBf16, .bits = 16};
inline constexpr Encoding kFp8E4M3{.format = Format::kFp8E4M3, .bits = 8},
    kFp8E5M2{.format = Format::kFp8E5M2, .bits = 8};
inline constexpr Encoding kFp8s[] = {kFp8E4M3, kFp8E5M2};
inline constexpr Encoding kQ8{.format = Format::kQ8_0, .bits = 8}, kQ4{.format = Format::kQ4_0, .bits = 4};

// Formats of levels: all there are.
inline std::vector<Encoding> levels() {
  std::vector<Encoding> all = sample_encodings();
  std::erase_if(all, [](const Encoding& e) { return descriptor_of(e.format).elements != Elements::kLevels; });
  return all;
}

inline std::vector<Encoding> quantised() {
  std::vector<Encoding> all{kFp8s[0], kFp8s[1], kQ8, kQ4};
  for (int bits = 1; bits <= 16; ++bits) {
    all.push_back(token(bits, true));
    if (bits > 1) all.push_back(token(bits, false));
    all.push_back(channel(bits, 8));
  }
  all.push_back(channel(2, 32));
  all.push_back(channel(4, 256));
  for (const Encoding& e : levels()) all.push_back(e);
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

// The bytes that hexadecimal digits stand for, as reference vectors have them.
inline std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Named {
  std::string name;
  std::vector<float> values;
};

// Rows that random ones never are, and random ones.
inline std::vector<Named> adversarial(size_t n) {
  const auto fill = [n](float x) { return std::vector<float>(n, x); };
  std::vector<Named> all{
      {"zeros", fill(0.0f)},     {"-zeros", fill(-0.0f)},     {"ones", fill(1.0f)},
      {"constant", fill(-0.7f)}, {"subnormal", fill(1e-42f)}, {"smallest", fill(FLT_TRUE_MIN)},
      {"max", fill(FLT_MAX)},    {"-max", fill(-FLT_MAX)},    {"f16 max", fill(65504.0f)}};
  Normal normal(1);
  for (const float scale : {1.0f, 1e-30f, 1e-41f, 1e-6f, 1e-4f, 300.0f, 1e30f, 2e38f}) {
    Named n1{"normal * " + std::to_string(scale), fill(0.0f)};
    for (float& x : n1.values) x = std::clamp(normal(), -1.6f, 1.6f) * scale;
    all.push_back(n1);
  }
  const auto gaussian = [&](const char* name) {
    Named row{name, fill(0.0f)};
    for (float& x : row.values) x = normal();
    return row;
  };
  Named outlier = gaussian("outlier");
  outlier.values[n / 2] = 1000.0f;
  Named huge = gaussian("outlier of max");
  huge.values[0] = -FLT_MAX;
  Named offset = gaussian("offset");
  for (float& x : offset.values) x += 5000.0f;
  Named ends{"plus and minus max", fill(FLT_MAX)};
  Named halves{"ties", fill(0.0f)};
  Named signs{"zeros of both signs", fill(0.0f)};
  for (size_t i = 0; i < n; ++i) {
    if (i % 2) ends.values[i] = -FLT_MAX;
    halves.values[i] = static_cast<float>(i % 16) - 7.5f;
    if (i % 3) signs.values[i] = -0.0f;
  }
  all.insert(all.end(), {outlier, huge, offset, ends, halves, signs});
  return all;
}

}  // namespace kv::test
