// ggml's formats beside its own blocks, byte for byte: by the description of each format, and as ggml's Python package and its
// library make them (ggml/reference.py).
#include "kernels/format/ggml_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/kernels/format/unit.h"

namespace kv {
namespace {

using namespace test;

// ggml's blocks written down from the description of its format alone: the scale is the first two bytes.
void put_half(float x, std::vector<uint8_t>& bytes) {
  const uint16_t half = f32_to_f16(x);
  bytes.push_back(static_cast<uint8_t>(half & 0xff));
  bytes.push_back(static_cast<uint8_t>(half >> 8));
}

std::vector<uint8_t> ggml_q8_0(const std::vector<float>& x) {
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    float absmax = 0.0f;
    for (size_t i = b; i < b + 32; ++i) absmax = std::max(absmax, std::fabs(x[i]));
    const float d = absmax / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    put_half(d, bytes);
    for (size_t i = b; i < b + 32; ++i)
      bytes.push_back(static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse))));
  }
  return bytes;
}

// The bits above the nibbles, bit after bit of a block's 32 codes; then the nibbles.
void put_codes(int bits, const std::vector<int>& codes, std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> upper(static_cast<size_t>(bits - 4) * 4);
  for (size_t i = 0; i < 32; ++i) {
    const int above = codes[i] >> 4;
    if (bits == 5) upper[i / 8] = static_cast<uint8_t>(upper[i / 8] + (above << (i % 8)));
    const size_t j = i % 16, half = i / 16;  // of a pair
    if (bits == 6) upper[j % 8] = static_cast<uint8_t>(upper[j % 8] + (above << (4 * (j / 8) + 2 * half)));
  }
  bytes.insert(bytes.end(), upper.begin(), upper.end());
  for (size_t j = 0; j < 16; ++j)
    bytes.push_back(static_cast<uint8_t>(codes[j] % 16 + 16 * (codes[j + 16] % 16)));
}

// q4_0 (4 bits), q5_0 (5) and q6_0 (6).
std::vector<uint8_t> ggml_symmetric(int bits, const std::vector<float>& x) {
  const int zero = 1 << (bits - 1);
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0.0f;
    for (size_t i = b; i < b + 32; ++i) largest = std::fabs(largest) < std::fabs(x[i]) ? x[i] : largest;
    const float d = largest / static_cast<float>(-zero), inverse = d != 0.0f ? 1.0f / d : 0.0f;
    put_half(d, bytes);
    std::vector<int> codes;
    for (size_t i = b; i < b + 32; ++i)
      codes.push_back(
          std::min(2 * zero - 1, static_cast<int>(x[i] * inverse + (static_cast<float>(zero) + 0.5f))));
    put_codes(bits, codes, bytes);
  }
  return bytes;
}

// q4_1 and q5_1.
std::vector<uint8_t> ggml_affine(int bits, const std::vector<float>& x) {
  const float top = static_cast<float>((1 << bits) - 1);
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    const auto [low, high] =
        std::minmax_element(x.begin() + static_cast<int64_t>(b), x.begin() + static_cast<int64_t>(b) + 32);
    const float d = (*high - *low) / top, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    put_half(d, bytes);
    put_half(*low, bytes);
    std::vector<int> codes;
    for (size_t i = b; i < b + 32; ++i)
      codes.push_back(std::min(static_cast<int>(top), static_cast<int>((x[i] - *low) * inverse + 0.5f)));
    put_codes(bits, codes, bytes);
  }
  return bytes;
}

std::vector<uint8_t> ggml_iq4_nl(const std::vector<float>& x) {
  static const std::vector<float> kLevels{-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0.0f;
    for (size_t i = b; i < b + 32; ++i) largest = std::fabs(largest) < std::fabs(x[i]) ? x[i] : largest;
    const float d = largest / -127.0f, inverse = std::fabs(largest) < 1e-15f ? 0.0f : 1.0f / d;
    float products = 0.0f, squares = 0.0f;
    std::vector<int> codes;
    for (size_t i = b; i < b + 32; ++i) {
      const float y = x[i] * inverse;
      const auto above = std::clamp(std::upper_bound(kLevels.begin(), kLevels.end(), y), kLevels.begin() + 1,
                                    kLevels.end() - 1);
      const auto near = y - above[-1] < above[0] - y ? above - 1 : above;
      codes.push_back(static_cast<int>(near - kLevels.begin()));
      products += x[i] * x[i] * *near * x[i];
      squares += x[i] * x[i] * *near * *near;
    }
    put_half(inverse == 0.0f ? 0.0f : products / squares, bytes);
    put_codes(4, codes, bytes);
  }
  return bytes;
}

struct Oracle {
  Encoding encoding;
  int block_bytes;
  std::vector<uint8_t> (*blocks)(const std::vector<float>& x);
  float most = 5e5f;  // ggml itself stays within f16's range
};
const Oracle kOracles[] = {
    {kQ8, 34, ggml_q8_0},
    {kQ4, 18, [](const auto& x) { return ggml_symmetric(4, x); }},
    {{.format = Format::kQ4_1, .bits = 4}, 20, [](const auto& x) { return ggml_affine(4, x); }, 65504.0f},
    {{.format = Format::kQ5_0, .bits = 5}, 22, [](const auto& x) { return ggml_symmetric(5, x); }},
    {{.format = Format::kQ5_1, .bits = 5}, 24, [](const auto& x) { return ggml_affine(5, x); }, 65504.0f},
    {{.format = Format::kIq4Nl, .bits = 4}, 18, ggml_iq4_nl},
    {{.format = Format::kQ6_0, .bits = 6}, 26, [](const auto& x) { return ggml_symmetric(6, x); }},
};

std::vector<std::byte> blocks_of(const Unit& unit) {
  const Format format = unit.encoding.format;
  std::vector<std::byte> blocks(static_cast<size_t>(unit.head_dim / 32 * ggml_block_bytes(format)));
  to_ggml_blocks(format, unit.head_dim, unit.data.data(), unit.meta.data(), blocks.data());
  return blocks;
}

TEST(Ggml, BlocksAreItsOwnByteForByteAndConvertBothWays) {
  for (const Oracle& oracle : kOracles) {
    const Encoding& e = oracle.encoding;
    EXPECT_EQ(ggml_block_bytes(e.format), oracle.block_bytes);
    for (const int d : {32, 64, 128, 512}) {
      for (const Named& rows : adversarial(static_cast<size_t>(d))) {
        SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + " " + rows.name);
        const Unit unit(e, d, rows.values);
        const std::vector<std::byte> blocks = blocks_of(unit);
        Unit back(e, d);
        from_ggml_blocks(e.format, d, blocks.data(), back.data.data(), back.meta.data());
        EXPECT_EQ(back.data, unit.data);
        EXPECT_EQ(back.meta, unit.meta);
        // Only if ggml itself stays within f16's and f32's ranges.
        float absmax = 0.0f;
        for (const float x : rows.values) absmax = std::max(absmax, std::fabs(x));
        if (absmax > oracle.most || (absmax > 0.0f && absmax < 1e-35f)) continue;
        const bool has_min = unit.meta.size() == static_cast<size_t>(d / 8);
        if (has_min && rows.name == "zeros of both signs") continue;  // the smaller one is either
        const std::vector<uint8_t> want = oracle.blocks(rows.values);
        ASSERT_EQ(want.size(), blocks.size());
        EXPECT_EQ(std::memcmp(want.data(), blocks.data(), want.size()), 0);
      }
    }
  }
  EXPECT_THROW(ggml_block_bytes(Format::kF16), std::logic_error);
}

TEST(Ggml, RowsAreWhatItsLibraryMakesOfThem) {
  std::ifstream file(KVLAB_SOURCE_DIR "/tests/kernels/format/ggml/rows.csv");
  std::string line, name, row, blocks;
  std::getline(file, line);
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::stringstream cells(line);
    for (std::string* cell : {&name, &row, &blocks}) std::getline(cells, *cell, ',');
    const auto is_named = [&](const Oracle& oracle) { return encoding_name(oracle.encoding) == name; };
    const std::vector<std::byte> raw = bytes_of(row);
    std::vector<float> x(raw.size() / 4);
    std::memcpy(x.data(), raw.data(), raw.size());
    const Unit unit(std::ranges::find_if(kOracles, is_named)->encoding, static_cast<int>(x.size()), x);
    EXPECT_EQ(blocks_of(unit), bytes_of(blocks)) << name << " row " << rows;
  }
  EXPECT_GT(rows, 80);
}

TEST(Ggml, AKnownBlock) {
  std::vector<float> row(32, 0.0f);
  row[0] = 127.0f, row[1] = 0.5f, row[2] = 1.5f, row[3] = -0.5f,
  row[4] = -126.5f;  // scale 1: halves away from zero
  const Unit unit(kQ8, 32, row);
  EXPECT_EQ(unit.meta_f16(0), 1.0f);
  row[5] = 0x1.fffffep-2f;  // the last before a half, to which adding a half would make 1
  const int codes[] = {127, 1, 2, -1, -127, 0, 0};
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(static_cast<int8_t>(unit.data[i]), codes[i]) << i;
  row.assign(32, 0.0f);
  row[0] = -8.0f, row[1] = 7.0f, row[16] = 7.9f, row[17] = -0.5f;
  const Unit four(kQ4, 32, row);
  EXPECT_EQ(four.meta_f16(0), 1.0f);
  EXPECT_EQ(static_cast<int>(four.data[0]), 0x00 | 0xf0);  // -8 -> 0; 7.9 is cut off at +7 -> 15
  EXPECT_EQ(static_cast<int>(four.data[1]), 0x0f | 0x80);  // 7 -> 15; -0.5 + 8.5 -> 8
}

}  // namespace
}  // namespace kv
