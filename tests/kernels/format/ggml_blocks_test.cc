// q8_0 and q4_0 beside ggml's own blocks, byte for byte.
#include "kernels/format/ggml_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/format/unit.h"

namespace kv {
namespace {

using namespace test;

// ggml's blocks written down from the description of its format alone: the scale is the first two bytes.
std::vector<uint8_t> ggml_q8_0(const std::vector<float>& x) {
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    float absmax = 0.0f;
    for (size_t i = b; i < b + 32; ++i) absmax = std::max(absmax, std::fabs(x[i]));
    const float d = absmax / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    const uint16_t scale = f32_to_f16(d);
    bytes.push_back(static_cast<uint8_t>(scale & 0xff));
    bytes.push_back(static_cast<uint8_t>(scale >> 8));
    for (size_t i = b; i < b + 32; ++i) {
      bytes.push_back(static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse))));
    }
  }
  return bytes;
}

std::vector<uint8_t> ggml_q4_0(const std::vector<float>& x) {
  std::vector<uint8_t> bytes;
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0.0f;
    for (size_t i = b; i < b + 32; ++i) {
      if (std::fabs(largest) < std::fabs(x[i])) largest = x[i];
    }
    const float d = largest / -8.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    const uint16_t scale = f32_to_f16(d);
    bytes.push_back(static_cast<uint8_t>(scale & 0xff));
    bytes.push_back(static_cast<uint8_t>(scale >> 8));
    const auto code = [&](size_t i) { return std::min(15, static_cast<int>(x[i] * inverse + 8.5f)); };
    for (size_t i = b; i < b + 16; ++i) bytes.push_back(static_cast<uint8_t>(code(i) + 16 * code(i + 16)));
  }
  return bytes;
}

TEST(Ggml, BlocksAreItsOwnByteForByteAndConvertBothWays) {
  for (const Encoding& e : {kQ8, kQ4}) {
    for (const int d : {32, 64, 128, 512}) {
      for (const Named& rows : adversarial(static_cast<size_t>(d))) {
        SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + " " + rows.name);
        const Unit unit(e, d, rows.values);
        std::vector<std::byte> blocks(static_cast<size_t>(d / 32 * ggml_block_bytes(e.format)));
        to_ggml_blocks(e.format, d, unit.data.data(), unit.meta.data(), blocks.data());
        Unit back(e, d);
        from_ggml_blocks(e.format, d, blocks.data(), back.data.data(), back.meta.data());
        EXPECT_EQ(back.data, unit.data);
        EXPECT_EQ(back.meta, unit.meta);
        // Only if ggml itself stays within f16's and f32's ranges.
        float absmax = 0.0f;
        for (const float x : rows.values) absmax = std::max(absmax, std::fabs(x));
        if (absmax > 5e5f || (absmax > 0.0f && absmax < 1e-35f)) continue;
        const std::vector<uint8_t> want = e == kQ8 ? ggml_q8_0(rows.values) : ggml_q4_0(rows.values);
        ASSERT_EQ(want.size(), blocks.size());
        EXPECT_EQ(std::memcmp(want.data(), blocks.data(), want.size()), 0);
      }
    }
  }
  EXPECT_EQ(ggml_block_bytes(Format::kQ8_0), 34);
  EXPECT_EQ(ggml_block_bytes(Format::kQ4_0), 18);
  EXPECT_THROW(ggml_block_bytes(Format::kF16), std::logic_error);
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
