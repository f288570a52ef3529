#include "harness/math/lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kv {
namespace {

const std::vector<double> kLengths{256, 512, 1024, 2048, 4096, 8192, 16384};

std::vector<math::LinePoint> steps(double intercept, double slope, double noise, std::mt19937& engine) {
  std::normal_distribution<double> normal;
  std::vector<math::LinePoint> points;
  for (const double x : kLengths)
    points.push_back({x, (intercept + slope * x) * (1 + noise * normal(engine))});
  return points;
}

TEST(Lines, ExactTimesGiveTheirLineAndCrossing) {
  std::mt19937 engine(1);
  const auto a = steps(10, 0.02, 0, engine), b = steps(80, 0.01, 0, engine);
  const auto line = math::fit_line(a);
  ASSERT_TRUE(line);
  EXPECT_NEAR(line->intercept, 10, 1e-9);
  EXPECT_NEAR(line->slope, 0.02, 1e-12);
  EXPECT_EQ(line->degrees, 5);
  EXPECT_NEAR(*math::held_out_error(a), 0, 1e-9);
  const auto found = math::crossing(*line, *math::fit_line(b));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->at, 7000, 1e-6);
  EXPECT_NEAR(found->interval.low, 7000, 1e-3);
  EXPECT_NEAR(found->interval.high, 7000, 1e-3);
}

TEST(Lines, WhatIsNoLineHasNone) {
  EXPECT_FALSE(math::fit_line(std::vector<math::LinePoint>{{1, 1}, {2, 2}}));
  EXPECT_FALSE(math::fit_line(std::vector<math::LinePoint>{{1, 1}, {2, 2}, {2, 2.1}}));
  EXPECT_FALSE(math::held_out_error(std::vector<math::LinePoint>{{1, 1}, {2, 2}, {3, 3}}));
  // Times that grow with the square: the longest, left out, is missed by far.
  std::vector<math::LinePoint> squares;
  for (const double x : kLengths) squares.push_back({x, 1 + x * x});
  EXPECT_GT(math::held_out_error(squares).value_or(1), 0.5);
}

TEST(Lines, ParallelLinesCrossNowhere) {
  std::mt19937 engine(2);
  const auto a = steps(10, 0.02, 0.03, engine), b = steps(30, 0.02, 0.03, engine);
  EXPECT_FALSE(math::crossing(*math::fit_line(a), *math::fit_line(b)));
  const auto c = steps(100, 0.02, 0, engine), d = steps(10, 0.01, 0, engine);  // cross at -9,000 tokens
  EXPECT_FALSE(math::crossing(*math::fit_line(c), *math::fit_line(d)));
}

// The share of simulated runs whose interval contains the true crossing at 7,000 tokens, and that have one at all.
TEST(Lines, CrossingsAreCoveredAsStated) {
  constexpr int kCrossings = 10000;
  std::mt19937 engine(3);
  for (const double noise : {0.01, 0.03, 0.06}) {
    int covered = 0, found = 0, slopes = 0;
    for (int run = 0; run < kCrossings; ++run) {
      const auto a = math::fit_line(steps(10, 0.02, noise, engine)),
                 b = math::fit_line(steps(80, 0.01, noise, engine));
      ASSERT_TRUE(a && b);
      slopes += a->slope_interval().contains(0.02);
      const auto crossing = math::crossing(*a, *b);
      if (!crossing) continue;
      ++found;
      covered += crossing->interval.contains(7000);
    }
    EXPECT_GT(found, kCrossings * 0.99) << noise;
    EXPECT_NEAR(static_cast<double>(covered) / found, 0.95, 0.01) << noise;
    EXPECT_NEAR(static_cast<double>(slopes) / kCrossings, 0.95, 0.01) << noise;
  }
}

}  // namespace
}  // namespace kv
