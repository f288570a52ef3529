#include "harness/math/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace kv {
namespace {

// Times of n repetitions around `center` microseconds, with 5 % of noise.
std::vector<double> times(int n, double center, uint32_t seed) {
  std::mt19937 engine(seed);
  std::lognormal_distribution<double> noise(0, 0.05);
  std::vector<double> samples;
  for (int i = 0; i < n; ++i) samples.push_back(center * noise(engine));
  return samples;
}

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

TEST(Stats, IntervalIsReproducibleAndOfTheRightWidth) {
  const std::vector<double> samples = times(101, 100, 1);
  const math::ConfidenceInterval interval = math::median_interval(samples),
                                 again = math::median_interval(samples);
  EXPECT_EQ(interval.low, again.low);
  EXPECT_EQ(interval.high, again.high);
  EXPECT_TRUE(interval.contains(math::median(samples)));
  // The median of n normals has standard error 1.2533 sigma / sqrt(n): 0.62 here, so 2.4 from end to end.
  EXPECT_GT(interval.high - interval.low, 1.2);
  EXPECT_LT(interval.high - interval.low, 4.8);
}

// Coverage is the one property an interval has; 300 trials of a nominal 95 %.
TEST(Stats, IntervalCoversTheTrueMedian) {
  int covered = 0;
  for (uint32_t seed = 0; seed < 300; ++seed)
    covered += math::median_interval(times(15, 100, seed)).contains(100);
  EXPECT_GT(covered, 300 * 0.89);
  EXPECT_LT(covered, 300 * 0.995);
}

TEST(Stats, FewSamplesSayNothing) {
  const std::vector<double> few = {1, 1, 1, 1}, more = {9, 9, 9, 9, 9};
  EXPECT_TRUE(std::isinf(math::median_interval(few).high));
  EXPECT_EQ(math::compare(math::ratio_of_medians(few, more, math::Pairing::kIndependent)),
            math::Verdict::kAmbiguous);
  EXPECT_EQ(math::compare(math::ratio_of_medians(more, more, math::Pairing::kIndependent)),
            math::Verdict::kAmbiguous);
}

TEST(Stats, TellsFasterFromSlower) {
  const std::vector<double> fast = times(10, 100, 1), slow = times(10, 130, 2);
  const math::Ratio ratio = math::ratio_of_medians(fast, slow, math::Pairing::kIndependent);
  EXPECT_NEAR(ratio.value, 100.0 / 130, 0.05);
  EXPECT_TRUE(ratio.interval.contains(ratio.value));
  EXPECT_EQ(math::compare(ratio), math::Verdict::kFaster);
  EXPECT_EQ(math::compare(math::ratio_of_medians(slow, fast, math::Pairing::kIndependent)),
            math::Verdict::kSlower);
}

// The A/A test: two sets from one distribution must seldom be told apart, but an interval that never errs is
// too wide.
TEST(Stats, NullComparisonIsSeldomDecided) {
  for (int repetitions : {5, 10, 20}) {
    int decided = 0;
    for (uint32_t seed = 0; seed < 500; ++seed) {
      const math::Ratio ratio =
          math::ratio_of_medians(times(repetitions, 100, 2 * seed), times(repetitions, 100, 2 * seed + 1),
                                 math::Pairing::kIndependent);
      decided += math::compare(ratio) != math::Verdict::kAmbiguous;
    }
    RecordProperty("decided_of_500_at_" + std::to_string(repetitions), decided);
    EXPECT_LE(decided, 500 * 0.08) << repetitions;
    EXPECT_GE(decided, 1) << repetitions;
  }
}

// A drift that both sides share hides a difference of 2 % from independent resampling, not from paired.
TEST(Stats, PairingRemovesACommonDrift) {
  std::vector<double> a, b;
  for (int i = 0; i < 21; ++i) {
    const double drift = 100 * (1 + 0.3 * std::sin(i * 1.7));
    a.push_back(drift);
    b.push_back(drift * 1.02);
  }
  EXPECT_EQ(math::compare(math::ratio_of_medians(a, b, math::Pairing::kIndependent)),
            math::Verdict::kAmbiguous);
  const math::Ratio paired = math::ratio_of_medians(a, b, math::Pairing::kPairedByIndex);
  EXPECT_EQ(math::compare(paired), math::Verdict::kFaster);
  EXPECT_NEAR(paired.interval.low, 1 / 1.02, 1e-9);
  EXPECT_NEAR(paired.interval.high, 1 / 1.02, 1e-9);
}

TEST(Stats, RefusesWhatHasNoRatio) {
  const std::vector<double> good = {1, 2, 3}, zero = {0, 1, 2}, two = {1, 2}, nan = {NAN, 1, 1};
  EXPECT_THROW(math::ratio_of_medians(good, zero, math::Pairing::kIndependent), std::logic_error);
  EXPECT_THROW(math::ratio_of_medians(good, nan, math::Pairing::kIndependent), std::logic_error);
  EXPECT_THROW(math::ratio_of_medians(good, two, math::Pairing::kPairedByIndex), std::logic_error);
  EXPECT_THROW(math::ratio_of_medians({}, two, math::Pairing::kIndependent), std::logic_error);
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
