// Moments, tails and independence of the random streams that every synthetic tensor is made of.
#include "harness/math/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

namespace kv::math::random {
namespace {

TEST(Random, NormalsHaveTheMomentsAndTailsOfN01) {
  std::vector<float> x(1 << 20);
  fill_normal(key({1, 2, 3}), x);
  double sum = 0, square = 0, cube = 0, fourth = 0;
  size_t beyond_2 = 0, beyond_4 = 0;
  for (float value : x) {
    const double v = value;
    sum += v, square += v * v, cube += v * v * v, fourth += v * v * v * v;
    beyond_2 += std::abs(v) > 2;
    beyond_4 += std::abs(v) > 4;
    ASSERT_NE(value, 0);
    ASSERT_LT(std::abs(value), 5.8);
  }
  const double n = static_cast<double>(x.size());  // each bound is about 4 standard errors
  EXPECT_NEAR(sum / n, 0, 0.004);
  EXPECT_NEAR(square / n, 1, 0.006);
  EXPECT_NEAR(cube / n, 0, 0.016);
  EXPECT_NEAR(fourth / n, 3, 0.04);
  EXPECT_NEAR(static_cast<double>(beyond_2) / n, 0.0455, 0.001);
  EXPECT_NEAR(static_cast<double>(beyond_4), 66, 33);
}

TEST(Random, NeighboursAreUncorrelated) {
  std::vector<float> a(1 << 16), b(1 << 16);
  fill_normal(key({7, 0}), a);
  fill_normal(key({7, 1}), b);
  double across = 0, along = 0, squares = 0;
  for (size_t i = 0; i + 2 < a.size(); ++i) {
    across += a[i] * b[i];
    along += a[i] * a[i + 1];
    squares += (a[i] * a[i] - 1) * (a[i + 1] * a[i + 1] - 1);
  }
  const double n = static_cast<double>(a.size());
  EXPECT_NEAR(across / n, 0, 0.016);
  EXPECT_NEAR(along / n, 0, 0.016);
  EXPECT_NEAR(squares / n, 0, 0.032);
}

TEST(Random, AShorterFillIsAPrefix) {
  std::vector<float> all(301), some(77);
  fill_normal(5, all);
  fill_normal(5, some);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], all[i]);
}

// These bits are the contract: results of two machines are compared on the same tensors.
TEST(Random, BitsAreTheSameEverywhere) {
  EXPECT_EQ(bits(0, 0), 0xe220a8397b1dcdafu) << "splitmix64's published first output for seed 0";
  std::vector<float> x(4);
  fill_normal(0, x);
  EXPECT_EQ(x, (std::vector<float>{0.0536080413f, 0.495259911f, -1.22899258f, 0.412823081f}));
}

// All of a fill, of values from different lanes of vectors and of its end; the sum is that of one value after the other.
TEST(Random, VectorsChangeNoBit) {
  std::vector<float> x(1001);
  fill_normal(9, x);
  uint64_t sum = 0;
  for (const float value : x) sum = sum * 0x9e3779b97f4a7c15 + std::bit_cast<uint32_t>(value);
  EXPECT_EQ(sum, 0x55fa2b28dd72b9c0u);
}

TEST(Random, CosSinAgreesWithLibm) {
  for (int i = 0; i < 100000; ++i) {
    const float turn = static_cast<float>(i) / 100000.0f;
    const CosSin got = cos_sin_of_turn(turn);
    ASSERT_NEAR(got.cos, std::cos(2 * std::numbers::pi * turn), 3e-7) << turn;
    ASSERT_NEAR(got.sin, std::sin(2 * std::numbers::pi * turn), 3e-7) << turn;
  }
}

TEST(Random, UniformsAreInsideAndUniform) {
  int counts[10] = {};
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform(42, i);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    ++counts[static_cast<int>(u * 10)];
    ASSERT_LT(below(42, i, 7), 7u);
  }
  for (int count : counts) EXPECT_NEAR(count, 10000, 400);
}

TEST(Random, KeysDependOnEveryPartAndItsPlace) {
  std::set<uint64_t> keys;
  for (uint64_t a = 0; a < 20; ++a) {
    for (uint64_t b = 0; b < 20; ++b) keys.insert(key({a, b}));
    keys.insert(key({a}));
  }
  EXPECT_EQ(keys.size(), 420u);
}

}  // namespace
}  // namespace kv::math::random
