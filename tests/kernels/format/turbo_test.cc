// TurboQuant's codes: the levels against their definition, the bytes against the layout that turbo.h describes, and what
// the paper claims of both stages.
#include "kernels/format/turbo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "harness/verify/reference/hadamard.h"
#include "kernels/hadamard.h"
#include "tests/kernels/format/unit.h"
#include "tests/normal.h"

namespace kv {
namespace {

using namespace test;

Encoding turbo(int bits, bool sketch) {
  return {.format = Format::kTurbo, .bits = static_cast<uint8_t>(bits), .second = sketch};
}

// ---- levels ----

// The integral of x^power over N(0,1) from a to b.
double moment(int power, double a, double b) {
  const int steps = 20000;
  double sum = 0.0;
  for (int i = 0; i < steps; ++i) {
    const double x = a + (i + 0.5) * (b - a) / steps;
    sum += std::pow(x, power) * std::exp(-x * x / 2);
  }
  return sum * (b - a) / steps / std::sqrt(2 * M_PI);
}

TEST(Turbo, LevelsAreTheMeansOfTheirCellsAndLeaveThePublishedError) {
  const double published[] = {0.36, 0.117, 0.03, 0.009};
  const double digit[] = {0.01, 0.001, 0.01, 0.001};  // a unit of the last
  for (int bits = 1; bits <= 4; ++bits) {
    const int count = 1 << (bits - 1);
    const float* level = kTurboLevels[bits - 1];
    double left = 0.0;
    for (int i = 0; i < count; ++i) {
      const double low = i ? (level[i - 1] + level[i]) / 2.0 : 0.0;
      const double high = i + 1 < count ? (level[i] + level[i + 1]) / 2.0 : 12.0;
      EXPECT_NEAR(level[i], moment(1, low, high) / moment(0, low, high), 2e-6) << bits << " " << i;
      left += 2 * (moment(2, low, high) - double{level[i]} * level[i] * moment(0, low, high));
    }
    EXPECT_NEAR(left, published[bits - 1], digit[bits - 1]) << bits;
  }
}

// ---- bytes ----

bool bit(const std::vector<std::byte>& bytes, size_t at) {
  return (static_cast<unsigned>(bytes[at / 8]) >> at % 8 & 1u) != 0;
}

// An element from the layout alone, but for the sketch.
double element(const Unit& unit, int i) {
  const int bits = unit.encoding.bits, n = unit.head_dim, packed = bits == 1 ? 0 : bits == 3 ? 2 : bits;
  unsigned code = 0;
  for (int b = 0; b < packed; ++b) {
    const int words = packed * n / 32;
    code |=
        static_cast<unsigned>(bit(unit.data, static_cast<size_t>(i % words * 32 + i / words * packed + b)))
        << b;
  }
  if (bits % 2)
    code |= static_cast<unsigned>(bit(unit.data, static_cast<size_t>(packed * n + i))) << (bits - 1);
  const unsigned sign = 1u << (bits - 1);
  return (code & sign ? -1.0 : 1.0) * double{kTurboLevels[bits - 1][code & (sign - 1)]} *
         double{unit.meta_f16(0)};
}

TEST(Turbo, ElementsAreWhatTheLayoutSays) {
  for (const int d : {32, 64, 96, 128, 192, 256}) {
    for (int bits = 1; bits <= 4; ++bits) {
      for (const bool sketch : {false, true}) {
        const std::vector<float> row = gaussian(d, 5);
        const Unit unit(turbo(bits, sketch), d, row);
        ASSERT_EQ(unit.data.size(), static_cast<size_t>(d * (bits + sketch) / 8));
        ASSERT_EQ(unit.meta.size(), sketch ? 4u : 2u);
        std::vector<float> sketched(row.size());
        for (int i = 0; sketch && i < d; ++i)
          sketched[static_cast<size_t>(i)] = bit(unit.data, static_cast<size_t>(bits * d + i)) ? -1.0f : 1.0f;
        reference::hadamard(sketched, d);
        const std::vector<float> back = unit.decoded();
        for (int i = 0; i < d; ++i) {
          const double gain = sketch ? std::sqrt(M_PI / 2) * double{unit.meta_f16(1)} : 0.0;
          const double sign = random_sign(kSketchSigns, i) ? -1.0 : 1.0;
          EXPECT_NEAR(back[static_cast<size_t>(i)],
                      element(unit, i) + sign * gain * sketched[static_cast<size_t>(i)], 1e-5)
              << bits << " " << sketch << " " << i;
        }
      }
    }
  }
}

TEST(Turbo, EachElementHasTheNearestLevel) {
  for (int bits = 1; bits <= 4; ++bits) {
    const std::vector<float> row = gaussian(128, 6);
    const Unit unit(turbo(bits, false), 128, row);
    const double scale = unit.meta_f16(0);
    for (int i = 0; i < 128; ++i) {
      const double x = row[static_cast<size_t>(i)], off = std::abs(element(unit, i) - x);
      for (int l = 0; l < 1 << (bits - 1); ++l)
        EXPECT_LE(off, std::abs(scale * double{kTurboLevels[bits - 1][l]} - std::abs(x)) + 1e-6)
            << bits << " " << i;
    }
  }
}

// ---- inner products ----

// The factor by which estimates of inner products are too large: their regression on the true ones.
double slope(const Encoding& e, int d, int rows) {
  double products = 0.0, squares = 0.0;
  for (int r = 0; r < rows; ++r) {
    const std::vector<float> k = gaussian(d, 100 + static_cast<unsigned>(r));
    const std::vector<float> stored = Unit(e, d, k).decoded();
    for (unsigned s = 0; s < 4; ++s) {  // queries near the key, of which a bias takes most
      std::vector<float> q = gaussian(d, 90000 + static_cast<unsigned>(r) * 4 + s);
      for (size_t i = 0; i < q.size(); ++i) q[i] += k[i];
      const double exact = std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
      products += exact * std::inner_product(q.begin(), q.end(), stored.begin(), 0.0);
      squares += exact * exact;
    }
  }
  return products / squares;
}

TEST(Turbo, InnerProductsAreUnbiasedWithTheSketchAndTooSmallByTheErrorWithout) {
  const double left[] = {0.3634, 0.1175, 0.03455};
  for (int bits = 1; bits <= 3; ++bits) {
    EXPECT_NEAR(slope(turbo(bits, false), 128, 400), 1.0 - left[bits - 1], 0.01) << bits;
    EXPECT_NEAR(slope(turbo(bits, true), 128, 400), 1.0, 0.01) << bits;
  }
}

TEST(Turbo, WithNormARowKeepsItsLengthAndInnerProductsHalfOfTheirBias) {
  const double left[] = {0.3634, 0.1175, 0.03455, 0.0095};
  for (int bits = 1; bits <= 4; ++bits) {
    Encoding e = turbo(bits, false);
    e.norm = true;
    for (const int d : {32, 128, 192}) {
      std::vector<float> row = gaussian(d, 7);
      row[3] *= 20.0f;  // of no normal distribution
      const std::vector<float> back = Unit(e, d, row).decoded();
      const double came = std::inner_product(row.begin(), row.end(), row.begin(), 0.0),
                   stored = std::inner_product(back.begin(), back.end(), back.begin(), 0.0);
      EXPECT_NEAR(std::sqrt(stored / came), 1.0, 0x1p-10) << bits << " " << d;
    }
    EXPECT_NEAR(slope(e, 128, 400), std::sqrt(1.0 - left[bits - 1]), 0.01) << bits;
  }
}

}  // namespace
}  // namespace kv
