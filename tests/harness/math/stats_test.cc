#include "harness/math/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace kv {
namespace {

TEST(Stats, PercentilesAreLinearBetweenRanks) {
  const std::vector<double> samples = {40, 10, 30, 20};
  EXPECT_EQ(math::percentile(samples, 0), 10);
  EXPECT_EQ(math::percentile(samples, 100), 40);
  EXPECT_EQ(math::percentile(samples, 50), 25);
  EXPECT_DOUBLE_EQ(math::percentile(samples, 90), 37);
  EXPECT_EQ(math::percentile(std::vector<double>{7}, 99), 7);
  EXPECT_THROW(math::percentile({}, 50), std::logic_error);
  EXPECT_THROW(math::percentile(samples, 100.5), std::logic_error);
}

TEST(Stats, RepetitionMediansKeepOneValueARepetition) {
  const std::vector<std::vector<double>> repetitions = {{1, 2, 99}, {4, 6}};
  EXPECT_EQ(math::repetition_medians(repetitions), (std::vector<double>{2, 5}));
}

TEST(Stats, StretchesOfOneAreTheTextbookMean) {
  std::vector<math::Stretch> ones;
  for (const double x : {3.0, 5.0, 8.0, 1.0, 2.0, 9.0}) ones.push_back({x, 1});
  EXPECT_DOUBLE_EQ(mean_of(ones), 28.0 / 6);
  // sqrt(sum of squared deviations / (n - 1) / n)
  EXPECT_NEAR(math::standard_error(ones), std::sqrt((184.0 - 28.0 * 28.0 / 6) / 5 / 6), 1e-12);
  EXPECT_DOUBLE_EQ(mean_of(std::vector<math::Stretch>{{10, 4}, {2, 2}}), 2);
  EXPECT_THROW(mean_of(std::vector<math::Stretch>{}), std::logic_error);
  EXPECT_TRUE(std::isinf(math::standard_error(std::span(ones).first(4))));
  EXPECT_TRUE(std::isinf(math::mean_interval(std::span(ones).first(4)).high));
}

// Neighbours that go together: as 320 independent samples the interval would be far too narrow.
TEST(Stats, IntervalOfAMeanCoversItWhenStretchesAreIndependent) {
  std::mt19937 engine(5);
  std::normal_distribution<double> normal;
  int covered = 0;
  double errors = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<math::Stretch> stretches;
    for (int s = 0; s < 40; ++s) {
      const double shared = normal(engine), count = s % 2 ? 8 : 5;
      stretches.push_back({count * (2 + shared), count});
    }
    covered += math::mean_interval(stretches).contains(2);
    errors += math::standard_error(stretches);
  }
  EXPECT_GT(covered, 200 * 0.89);
  EXPECT_LT(covered, 200 * 0.99);
  // sqrt(sum of count^2) / sum of count
  EXPECT_NEAR(errors / 200, std::sqrt(20.0 * (64 + 25)) / (20 * 13), 0.01);
}

}  // namespace
}  // namespace kv
