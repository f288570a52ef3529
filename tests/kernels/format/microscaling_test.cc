// mxfp8, mxfp4 and nvfp4 against the documents that define them, and against another implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "kernels/format/bits.h"
#include "kernels/format/mx.h"
#include "kernels/format/nvfp4.h"
#include "tests/kernels/format/unit.h"

namespace kv {
namespace {

using namespace test;

// ---- E2M1 and E8M0, every code ----

double e2m1_value(unsigned code) {
  const int exponent = static_cast<int>(code >> 1 & 3u), mantissa = static_cast<int>(code & 1u);
  const double magnitude = exponent ? std::ldexp(1.0 + mantissa / 2.0, exponent - 1) : mantissa / 2.0;
  return code & 8u ? -magnitude : magnitude;
}

TEST(E2m1, EveryCodeAndEveryTieIsAsTheSpecificationSays) {
  for (unsigned code = 0; code < 16; ++code) {
    const float value = e2m1_to_f32(code);
    EXPECT_EQ(value, e2m1_value(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 8) << code;
    EXPECT_EQ(f32_to_e2m1(value), code);
    if (code % 8 == 7) continue;
    const auto next = static_cast<float>(e2m1_value(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(f32_to_e2m1(middle), code % 2 ? code + 1 : code) << middle;
    EXPECT_EQ(f32_to_e2m1(std::nextafter(middle, value)), code);
    EXPECT_EQ(f32_to_e2m1(std::nextafter(middle, next)), code + 1);
  }
  for (const float big : {6.5f, 7.0f, 100.0f, FLT_MAX}) {
    EXPECT_EQ(f32_to_e2m1(big), 7u);
    EXPECT_EQ(f32_to_e2m1(-big), 15u);
  }
  EXPECT_EQ(f32_to_e2m1(FLT_TRUE_MIN), 0u);
  EXPECT_EQ(f32_to_e2m1(-FLT_TRUE_MIN), 8u);
}

TEST(E8m0, EveryCodeIsAPowerOfTwoAndHasAnExactInverse) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(e8m0_to_f32(byte), std::ldexp(1.0, code - 127)) << code;
    if (code == 254) continue;  // never stored
    EXPECT_EQ(e8m0_inverse(byte), std::ldexp(1.0, 127 - code)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_f32(kE8m0Nan)));
  EXPECT_EQ(e8m0_inverse(kE8m0Nan), 0.0f);
}

TEST(E8m0, TheScaleIsThePowerOfTwoBelowTheLargestMagnitudeOverThatOfTheElements) {
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (const int top : {2, 8, 15}) {
      const int want = std::max(exponent - top, -127);
      for (const double mantissa : {1.0, 1.5, 1.9999999}) {
        const auto largest = static_cast<float>(std::ldexp(mantissa, exponent));
        if (exponent < -126 && mantissa != 1.0) continue;  // subnormals are rounded
        EXPECT_EQ(e8m0_scale(std::bit_cast<uint32_t>(largest), top), want + 127) << exponent << " " << top;
      }
    }
  }
}

// ---- whole rows, against ml_dtypes (microscaling/reference.py) ----

const Encoding& named(const std::string& name) {
  static const std::vector<Encoding> all = levels();
  return *std::find_if(all.begin(), all.end(), [&](const Encoding& e) { return encoding_name(e) == name; });
}

TEST(Microscaling, RowsAreWhatMlDtypesMakesOfThem) {
  std::ifstream file(KVLAB_SOURCE_DIR "/tests/kernels/format/microscaling/rows.csv");
  std::string line;
  std::getline(file, line);
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::stringstream cells(line);
    std::string name, row, row_scale, scales, codes;
    for (std::string* cell : {&name, &row, &row_scale, &scales, &codes}) std::getline(cells, *cell, ',');
    const std::vector<std::byte> raw = bytes_of(row);
    std::vector<float> x(raw.size() / 4);
    std::memcpy(x.data(), raw.data(), raw.size());
    const Unit unit(named(name), static_cast<int>(x.size()), x);
    EXPECT_EQ(unit.meta, bytes_of(row_scale + scales)) << name << " row " << rows;
    std::vector<uint16_t> got(x.size()), want;
    for (const std::byte code : bytes_of(codes)) want.push_back(static_cast<uint16_t>(code));
    unpack_codes(unit.encoding.bits, unit.head_dim, unit.data.data(), got.data());
    EXPECT_EQ(got, want) << name << " row " << rows;
  }
  EXPECT_GT(rows, 100);
}

}  // namespace
}  // namespace kv
