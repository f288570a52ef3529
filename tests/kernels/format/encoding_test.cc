// Encodings bit by bit: the packer, FP8, and what every format promises of any row.
#include "kernels/format/encoding.h"
#include "kernels/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <random>
#include <string>

#include "kernels/format/bits.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace test;
using contract::relative_l2;

// The uniform grid that element (row, i) was stored on, as the metadata says, and its ends.
struct StoredGrid {
  double low, high, step;
};
StoredGrid grid_of(const Unit& unit, int i) {
  const Encoding& e = unit.encoding;
  const auto affine = [&](double zero, double scale) {
    return StoredGrid{zero, zero + scale * ((1 << e.bits) - 1), scale};
  };
  if (e.format == Format::kChannel && e.bits <= 8)
    return affine(unit.meta_f16(unit.head_dim + i), unit.meta_f16(i));
  if (e.format == Format::kChannel) return affine(unit.meta_f32(unit.head_dim + i), unit.meta_f32(i));
  if (e.affine) return affine(unit.meta_f32(1), unit.meta_f32(0));
  const double scale = unit.meta_f32(0), top = (1 << (e.bits - 1)) - 1;
  return {-scale * top, scale * top, scale};
}

template <class F>
void for_each_unit(F check) {
  for (const Encoding& e : quantised()) {
    for (const int d : kHeadDims) {
      if (!unsupported_reason(e, d).empty()) continue;
      for (const Named& rows : adversarial(static_cast<size_t>(e.group * d))) {
        SCOPED_TRACE(encoding_name(e) + " head_dim " + std::to_string(d) + " " + rows.name);
        check(e, d, rows.values);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// ---- the packer ----

// The place of bit `bit` of code i by encoding.h's description, derived again.
int described_bit(int bits, int n, int i, int bit) {
  if (bits * n % 32 != 0 || (bits != 1 && bits != 2 && bits != 4 && bits != 8)) return i * bits + bit;
  const int words = n * bits / 32, word = i % words, slot = (i - word) / words;
  return 32 * word + slot * bits + bit;
}

TEST(Bits, EveryWidthRoundTripsAndPutsEveryBitInItsPlace) {
  std::mt19937 rng(3);
  for (int bits = 1; bits <= 16; ++bits) {
    for (const int n : kHeadDims) {
      std::vector<uint16_t> codes(static_cast<size_t>(n)), back(codes.size());
      for (uint16_t& c : codes) c = static_cast<uint16_t>(rng() & ((1u << bits) - 1u));
      std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(bits, n)));
      ASSERT_EQ(8 * packed.size(), static_cast<size_t>(bits * n));
      pack_codes(bits, n, codes.data(), packed.data());
      unpack_codes(bits, n, packed.data(), back.data());
      ASSERT_EQ(back, codes) << bits;
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(code_bit(bits, n, i), described_bit(bits, n, i, 0));
        for (int bit = 0; bit < bits; ++bit) {
          const int at = described_bit(bits, n, i, bit);
          const int stored = (static_cast<int>(packed[static_cast<size_t>(at / 8)]) >> (at % 8)) & 1;
          ASSERT_EQ(stored, (codes[static_cast<size_t>(i)] >> bit) & 1) << bits << " code " << i;
        }
      }
    }
  }
}

// ---- FP8 ----

// The value of a code from the definition of the format.
double fp8_value(const Fp8& f, int code) {
  const int magnitude = code & 0x7f, mantissa = magnitude & ((1 << f.mantissa_bits) - 1);
  const int exponent = magnitude >> f.mantissa_bits;
  const double sign = code & 0x80 ? -1.0 : 1.0;
  if (magnitude > f.largest) return f.mantissa_bits == 2 && mantissa == 0 ? sign * INFINITY : NAN;
  const double m = std::ldexp(mantissa, -f.mantissa_bits) + (exponent ? 1.0 : 0.0);
  return std::copysign(std::ldexp(m, std::max(exponent, 1) - f.bias), sign);
}

template <Fp8 F>
void check_fp8() {
  EXPECT_EQ(fp8_value(F, F.largest), F.mantissa_bits == 3 ? 448.0 : 57344.0);
  for (int code = 0; code < 256; ++code) {
    const double want = fp8_value(F, code);
    const float got = fp8_to_f32<F>(static_cast<uint8_t>(code));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
      EXPECT_TRUE(std::isnan(fp8_to_f32<F>(f32_to_fp8<F>(got))));
      continue;
    }
    EXPECT_EQ(got, want) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
    if (std::isinf(want)) continue;
    EXPECT_EQ(f32_to_fp8<F>(got), code);
    // The middle between neighbours goes to the even code, and what is a little off it to the nearer one.
    if ((code & 0x7f) == F.largest) continue;
    const float next = static_cast<float>(fp8_value(F, code + 1));
    const float middle = 0.5f * (got + next);
    EXPECT_EQ(f32_to_fp8<F>(middle), code % 2 ? code + 1 : code);
    EXPECT_EQ(f32_to_fp8<F>(std::nextafter(middle, got)), code);
    EXPECT_EQ(f32_to_fp8<F>(std::nextafter(middle, next)), code + 1);
  }
  for (const float big : {1e6f, FLT_MAX, INFINITY}) {
    EXPECT_EQ(f32_to_fp8<F>(big), F.largest);
    EXPECT_EQ(f32_to_fp8<F>(-big), F.largest | 0x80);
  }
}

TEST(Fp8, EveryCodeAndEveryMiddle) {
  check_fp8<kE4M3>();
  check_fp8<kE5M2>();
}

TEST(Fp8, TheScaleIsTheSmallestPowerOfTwoInRange) {
  for (const Encoding& e : kFp8s) {
    const bool e4m3 = e.format == Format::kFp8E4M3;
    const double largest = e4m3 ? 448.0 : 57344.0, overflow = e4m3 ? 464.0 : 61440.0;
    for (const Named& rows : adversarial(64)) {
      SCOPED_TRACE(encoding_name(e) + " " + rows.name);
      const Unit unit(e, 64, rows.values);
      const double scale = unit.meta_f32(0);
      int exponent;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5);
      double absmax = 0.0;
      for (const float x : rows.values) absmax = std::max(absmax, std::fabs(double{x}));
      absmax = std::min(absmax, 1.75 * 0x1p127);
      EXPECT_LE(absmax / scale, overflow);
      if (scale > 0x1p-126) {
        EXPECT_GE(absmax / (scale / 2), overflow);
      }
      const std::vector<float> back = unit.decoded();
      const double step = e4m3 ? 0x1p-3 : 0x1p-2;
      for (size_t i = 0; i < back.size(); ++i) {
        const double x = std::clamp(double{rows.values[i]}, -largest * scale, largest * scale);
        const double smallest = scale * (e4m3 ? 0x1p-6 : 0x1p-14);  // below it steps are equal
        EXPECT_LE(std::fabs(back[i] - x), 0.5 * step * std::max(std::fabs(x), smallest)) << x;
      }
    }
  }
}

// The border is where the largest value's own rounding would overflow: a tie goes to 448, but not to 57344.
TEST(Fp8, TheScaleAtTheBorder) {
  const auto scale = [](const Encoding& e, float largest) {
    return Unit(e, 8, std::vector<float>(8, largest)).meta_f32(0);
  };
  EXPECT_EQ(scale(kFp8s[0], 464.0f), 1.0f);
  EXPECT_EQ(scale(kFp8s[0], std::nextafter(464.0f, 1000.0f)), 2.0f);
  EXPECT_EQ(scale(kFp8s[1], std::nextafter(61440.0f, 0.0f)), 1.0f);
  EXPECT_EQ(scale(kFp8s[1], 61440.0f), 2.0f);
}

TEST(Fp8, InfinityIsTheLargest) {
  for (const Encoding& e : kFp8s) {
    std::vector<float> row(8, 1.0f);
    row[3] = -INFINITY;
    const std::vector<float> back = Unit(e, 8, row).decoded();
    EXPECT_EQ(back[0], 1.0f);
    EXPECT_TRUE(std::isfinite(back[3]) && back[3] < -1.0f);
  }
}

// Codes are finite whatever the row: kernels that make numbers of them need no look at each.
TEST(Fp8, NanIsInTheScaleAndInNoCode) {
  for (const Encoding& e : kFp8s) {
    const Fp8& f = e.format == Format::kFp8E4M3 ? kE4M3 : kE5M2;
    for (const float nan : {NAN, -NAN}) {
      for (const float other : {1.0f, 1e38f, INFINITY}) {
        std::vector<float> row(32, other);
        row[2] = nan;
        const Unit unit(e, 32, row);
        EXPECT_TRUE(std::isnan(unit.meta_f32(0)));
        for (const float x : unit.decoded()) EXPECT_TRUE(std::isnan(x));
        for (const std::byte code : unit.data) EXPECT_LE(static_cast<int>(code) & 0x7f, f.largest);
      }
    }
  }
}

// ---- every format ----

TEST(Encoding, FiniteRowsStayFinite) {
  for_each_unit([](const Encoding& e, int d, const std::vector<float>& rows) {
    for (const float x : Unit(e, d, rows).decoded()) ASSERT_TRUE(std::isfinite(x));
  });
}

TEST(Encoding, TheSameRowsGiveTheSameBytes) {
  for_each_unit([](const Encoding& e, int d, const std::vector<float>& rows) {
    Unit a(e, d, rows), b(e, d);
    std::fill(b.data.begin(), b.data.end(), std::byte{0xff});  // earlier content does not matter
    std::fill(b.meta.begin(), b.meta.end(), std::byte{0xff});
    encode_unit(e, d, rows.data(), b.data.data(), b.meta.data());
    ASSERT_EQ(a.data, b.data);
    ASSERT_EQ(a.meta, b.meta);
  });
}

// Uniform codes: in range, off by at most half a step of the *stored* scale; out of range, the end of the
// range.
TEST(Encoding, TheErrorIsAtMostHalfAStep) {
  for_each_unit([](const Encoding& e, int d, const std::vector<float>& rows) {
    if (e.format != Format::kToken && e.format != Format::kChannel) return;
    const Unit unit(e, d, rows);
    const std::vector<float> back = unit.decoded();
    for (size_t i = 0; i < rows.size(); ++i) {
      const StoredGrid g = grid_of(unit, static_cast<int>(i) % d);
      const double x = std::clamp(double{rows[i]}, g.low, g.high);
      // f32 arithmetic: the product with 1/scale is off by a few units of 2^-24 of the code, the decoded sum
      // by one of the largest term.
      const double rounding =
          0x1p-22 * (g.high - g.low) + 0x1p-23 * std::max(std::fabs(g.low), std::fabs(g.high));
      ASSERT_LE(std::fabs(back[i] - x), 0.5 * g.step + rounding)
          << rows[i] << " in " << g.low << " … " << g.high;
      // The range reaches every element that the format has a place for.
      const double limit = e.format == Format::kChannel && e.bits <= 8 ? 32752.0 : 0x1p126;
      const double reach = 0.5 * g.step + rounding;
      ASSERT_LE(g.low, std::clamp(double{rows[i]}, -limit, limit) + reach);
      ASSERT_GE(g.high, std::clamp(double{rows[i]}, -limit, limit) - reach);
    }
  });
}

// And not only at most: over many numbers the error fills the half step evenly, as rounding to nearest does.
TEST(Encoding, TheErrorIsThatOfRoundingToNearest) {
  const int d = 512;
  std::mt19937_64 rng(9);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int bits = 1; bits <= 12; ++bits) {
    for (const Encoding& e : {token(bits, true), token(std::max(bits, 2), false), channel(bits, 256)}) {
      double sum = 0.0, squares = 0.0, count = 0.0, worst = 0.0;
      for (int repeat = 0; repeat < 512 / e.group; ++repeat) {
        std::vector<float> rows(static_cast<size_t>(e.group * d));
        for (float& x : rows) x = uniform(rng);
        const Unit unit(e, d, rows);
        const std::vector<float> back = unit.decoded();
        for (size_t i = 0; i < rows.size(); ++i) {
          const double off = (double{back[i]} - rows[i]) / grid_of(unit, static_cast<int>(i) % d).step;
          sum += off;
          squares += off * off;
          worst = std::max(worst, std::fabs(off));
          count += 1.0;
        }
      }
      EXPECT_NEAR(sum / count, 0.0, 0.01) << encoding_name(e);
      EXPECT_NEAR(std::sqrt(12.0 * squares / count), 1.0, 0.02) << encoding_name(e);
      EXPECT_GT(worst, 0.49) << encoding_name(e);
    }
  }
}

TEST(Encoding, TiesGoToEven) {
  // Steps of exactly 1 from -8 to 7; x.5 is a tie.
  std::vector<float> row{-8.0f, 7.0f, -7.5f, -6.5f, -0.5f, 0.5f, 1.5f, 2.5f};
  const std::vector<float> affine = Unit(token(4, true), 8, row).decoded();
  EXPECT_EQ(affine, (std::vector<float>{-8, 7, -8, -6, 0, 0, 2, 2}));
  row = {-7.0f, 7.0f, -6.5f, -5.5f, -0.5f, 0.5f, 1.5f, 2.5f};
  EXPECT_EQ(Unit(token(4, false), 8, row).decoded(), (std::vector<float>{-7, 7, -6, -6, 0, 0, 2, 2}));
}

TEST(Encoding, ConstantRowsAreExactWherePromised) {
  for (int bits = 1; bits <= 16; ++bits) {
    for (const float x : {0.0f, -0.7f, 1e-42f, 3e37f, 65504.0f}) {
      const std::vector<float> row(64, x);
      EXPECT_EQ(Unit(token(bits, true), 64, row).decoded(), row) << bits << " " << x;
    }
    for (const float x : {0.0f, -0.75f, 31008.0f, 0x1p-24f}) {  // f16 has these
      const std::vector<float> rows(8 * 16, x);
      EXPECT_EQ(Unit(channel(bits, 8), 16, rows).decoded(), rows) << bits << " " << x;
    }
  }
}

// Decoded rows encode to the same codes; scales may move by their last place.
TEST(Encoding, EncodingIsIdempotent) {
  test::Normal normal(5);
  for (const Encoding& e : quantised()) {
    // turbo's levels are means, which are shorter than what they stand for, and iq4_nl's scale fits them anew.
    if (e.format == Format::kTurbo || e.format == Format::kIq4Nl) continue;
    for (const int d : kHeadDims) {
      if (!unsupported_reason(e, d).empty()) continue;
      std::vector<float> rows(static_cast<size_t>(e.group * d));
      for (float& x : rows) x = f16_to_f32(f32_to_f16(normal()));
      const Unit once(e, d, rows);
      const std::vector<float> back = once.decoded();
      const Unit twice(e, d, back);
      EXPECT_EQ(once.data, twice.data) << encoding_name(e) << " head_dim " << d;
      if (e.format != Format::kToken && !(e.format == Format::kChannel && e.bits > 8)) {
        EXPECT_EQ(once.meta, twice.meta) << encoding_name(e) << " head_dim " << d;
      }
      EXPECT_LE(relative_l2(twice.decoded(), back), 1e-7) << encoding_name(e);
    }
  }
}

TEST(Encoding, ANonFiniteElementShowsInAllThatSharesItsScaleAndNowhereElse) {
  const int d = 64, at = 40;
  for (const Encoding& e : quantised()) {
    const Format f = e.format;
    const bool fp8 = f == Format::kFp8E4M3 || f == Format::kFp8E5M2;
    const int alike = fp8 || f == Format::kToken || f == Format::kTurbo ? d : f == Format::kNvFp4 ? 16 : 32;
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      if (fp8 && std::isinf(bad)) continue;
      std::vector<float> rows(static_cast<size_t>(e.group * d), 1.5f);
      const std::vector<float> clean = Unit(e, d, rows).decoded();
      rows[at] = bad;
      const std::vector<float> back = Unit(e, d, rows).decoded();
      for (int i = 0; i < e.group * d; ++i) {
        SCOPED_TRACE(encoding_name(e) + " " + std::to_string(bad) + " element " + std::to_string(i));
        const auto of = static_cast<size_t>(i);
        if (f == Format::kChannel ? i % d == at : i / alike == at / alike)
          ASSERT_TRUE(std::isnan(back[of]));
        else
          ASSERT_EQ(back[of], clean[of]);
      }
    }
  }
}

// A span's bulk decoding is decode_row, row by row, wherever it starts and ends.
TEST(Encoding, DecodeRowsIsDecodeRow) {
  test::Normal normal(6);
  const int d = 64;
  for (const Encoding& e : quantised()) {
    const int units = 3;
    const int64_t data_stride = unit_data_bytes(e, d) + 5, meta_stride = unit_meta_bytes(e, d) + 3;
    std::vector<std::byte> data(static_cast<size_t>(units * data_stride)),
        meta(static_cast<size_t>(units * meta_stride));
    std::vector<float> want;
    for (int u = 0; u < units; ++u) {
      std::vector<float> rows(static_cast<size_t>(e.group * d));
      for (float& x : rows) x = normal();
      encode_unit(e, d, rows.data(), data.data() + u * data_stride, meta.data() + u * meta_stride);
      for (int r = 0; r < e.group; ++r) {
        decode_row(e, d, data.data() + u * data_stride, meta.data() + u * meta_stride, r, rows.data());
        want.insert(want.end(), rows.begin(), rows.begin() + d);
      }
    }
    const Side side{.data = data.data(),
                    .meta = meta.data(),
                    .stride = data_stride,
                    .meta_stride = meta_stride,
                    .encoding = e};
    const int64_t rows = units * e.group;
    for (int64_t first = 0; first < rows; first += std::max<int64_t>(1, rows / 7)) {
      for (int64_t count = 1; first + count <= rows; count += std::max<int64_t>(1, rows / 5)) {
        std::vector<float> got(static_cast<size_t>(count * d));
        decode_rows(side, d, first, count, got.data());
        ASSERT_EQ(std::memcmp(got.data(), want.data() + first * d, got.size() * sizeof(float)), 0)
            << encoding_name(e) << " rows " << first << " + " << count;
      }
    }
  }
}

}  // namespace
}  // namespace kv
