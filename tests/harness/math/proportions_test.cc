#include "harness/math/proportions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

namespace kv {
namespace {

// Newcombe (Statistics in Medicine 17, 1998, table I, method 3) and scipy.stats.binomtest(...).proportion_ci(method="wilson").
TEST(Proportions, WilsonsIntervalsAreThePublishedOnes) {
  const auto is = [](int64_t successes, int64_t trials, double low, double high) {
    const math::ConfidenceInterval interval = math::wilson_interval(successes, trials);
    EXPECT_NEAR(interval.low, low, 5e-5) << successes << " of " << trials;
    EXPECT_NEAR(interval.high, high, 5e-5) << successes << " of " << trials;
  };
  is(81, 263, 0.2553, 0.3662);
  is(15, 148, 0.0624, 0.1605);
  is(0, 20, 0.0, 0.1611);
  is(1, 29, 0.0061, 0.1718);
  is(8, 8, 0.6756, 1.0);
  EXPECT_THROW(math::wilson_interval(0, 0), std::logic_error);
  EXPECT_THROW(math::wilson_interval(3, 2), std::logic_error);
}

TEST(Proportions, WilsonsIntervalsHoldTheProbability) {
  std::mt19937 engine(3);
  for (const double p : {0.1, 0.5, 0.9}) {
    std::binomial_distribution<int64_t> draws(24, p);
    int held = 0;
    constexpr int kTrials = 4000;
    for (int i = 0; i < kTrials; ++i) held += math::wilson_interval(draws(engine), 24).contains(p);
    EXPECT_GT(held, 0.92 * kTrials) << p;
    EXPECT_LT(held, 0.985 * kTrials) << p;
  }
}

TEST(Proportions, McNemarsTestCountsCoins) {
  EXPECT_EQ(math::mcnemar_p(0, 0), 1.0);
  EXPECT_EQ(math::mcnemar_p(3, 3), 1.0);
  EXPECT_NEAR(math::mcnemar_p(0, 8), 2.0 / 256, 1e-12);
  EXPECT_NEAR(math::mcnemar_p(8, 0), 2.0 / 256, 1e-12);
  EXPECT_NEAR(math::mcnemar_p(1, 9), 2.0 * (1 + 10) / 1024, 1e-12);
  EXPECT_NEAR(math::mcnemar_p(0, 60), std::exp2(-59), 1e-22);
}

// Without a pair that differs the score's interval is z^2 / (n + z^2) on either side.
TEST(Proportions, TangosIntervalsHoldTheDifference) {
  const double z2 = 1.959963984540054 * 1.959963984540054;
  const math::ConfidenceInterval alike = math::paired_difference_interval(0, 0, 36);
  EXPECT_NEAR(alike.high, z2 / (36 + z2), 1e-9);
  EXPECT_NEAR(alike.low, -alike.high, 1e-9);
  EXPECT_NEAR(math::paired_difference_interval(0, 9, 9).low, -1, 1e-9);
  EXPECT_THROW(math::paired_difference_interval(1, 1, 1), std::logic_error);
  std::mt19937 engine(7);
  for (const auto& [first, second] : {std::pair(0.05, 0.15), std::pair(0.1, 0.3), std::pair(0.2, 0.2)}) {
    std::discrete_distribution<int> outcome{first, second, 1 - first - second};
    int held = 0;
    constexpr int kTrials = 4000;
    for (int i = 0; i < kTrials; ++i) {
      int64_t counts[3] = {};
      for (int pair = 0; pair < 36; ++pair) ++counts[outcome(engine)];
      held += math::paired_difference_interval(counts[0], counts[1], 36).contains(first - second);
    }
    EXPECT_GT(held, 0.93 * kTrials) << first;
    EXPECT_LT(held, 0.995 * kTrials) << first;
  }
}

}  // namespace
}  // namespace kv
