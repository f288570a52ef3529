#include "harness/math/medians.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

namespace kv {
namespace {

using math::Verdict;

// Times of n repetitions around `center` microseconds, with 5 % of noise.
std::vector<double> times(int n, double center, uint32_t seed) {
  std::mt19937 engine(seed);
  std::lognormal_distribution<double> noise(0, 0.05);
  std::vector<double> samples;
  for (int i = 0; i < n; ++i) samples.push_back(center * noise(engine));
  return samples;
}

TEST(Medians, StudentsQuantilesAreTheTables) {
  EXPECT_NEAR(math::student_quantile(0.95, 4), 2.776445, 1e-6);
  EXPECT_NEAR(math::student_quantile(0.99, 8), 3.355387, 1e-6);
  EXPECT_NEAR(math::student_quantile(0.95, 1), 12.706205, 1e-5);
  EXPECT_NEAR(math::student_quantile(0.998, 6), 5.207626, 1e-6);
  EXPECT_NEAR(math::student_quantile(0.95, 1e6), 1.959966, 1e-5);
  EXPECT_NEAR(math::student_quantile(0.95, 5.5), 2.502, 1e-3);  // between those of 5 and 6 degrees
  EXPECT_THROW(math::student_quantile(1, 4), std::logic_error);
  EXPECT_THROW(math::student_quantile(0.95, 0), std::logic_error);
}

TEST(Medians, AnIntervalIsAroundItsMedianWhateverTheTimes) {
  for (int n = 5; n < 12; ++n) {
    for (uint32_t seed = 0; seed < 100; ++seed) {
      std::vector<double> samples = times(n, 100, seed);
      samples.back() *= seed % 3 ? 1 : 9;  // one that was disturbed
      const math::ConfidenceInterval interval = math::median_interval(samples);
      EXPECT_TRUE(interval.contains(math::median(samples)));
      EXPECT_LT(interval.low, interval.high);
      EXPECT_GT(interval.low, 0);
      const math::ConfidenceInterval wider = math::median_interval(samples, 0.99);
      EXPECT_TRUE(wider.low <= interval.low && interval.high <= wider.high);
    }
  }
}

// One disturbed repetition says nothing of times below the others.
TEST(Medians, AnOutlierLeavesTheOtherEndWhereItWas) {
  const math::ConfidenceInterval interval =
      math::median_interval(std::vector<double>{98, 99, 100, 101, 5000});
  EXPECT_NEAR(interval.low, 98.0 * 98 / 100, 1e-9);
  EXPECT_GT(interval.high, 500);
}

// By hand: of 1, 2, 3, 4, 5 the mean is 3, its standard error sqrt(2.5 / 5) and Student's t 2.776.
TEST(Medians, AMeansIntervalContainsItAndHasNoNegativeEnd) {
  const math::ConfidenceInterval interval = math::interval_of_mean(std::vector<double>{1, 2, 3, 4, 5});
  const double factor = std::exp(2.776445 * std::sqrt(0.5) / 3);
  EXPECT_NEAR(interval.high, 3 * factor, 1e-5);
  EXPECT_NEAR(interval.low, 3 / factor, 1e-5);
  const math::ConfidenceInterval few = math::interval_of_mean(std::vector<double>{1, 2, 3, 4});
  EXPECT_TRUE(std::isinf(few.low) && std::isinf(few.high));
}

TEST(Medians, FewTimesSayNothing) {
  const std::vector<double> few = {1, 1, 1, 1}, more = {9, 9, 9, 9, 9};
  EXPECT_TRUE(std::isinf(math::median_interval(few).high));
  const math::Ratio ratio = math::ratio_of_medians(few, more);
  EXPECT_EQ(math::compare(ratio.interval()), Verdict::kAmbiguous);
  EXPECT_EQ(ratio.p_value(), 1);
}

TEST(Medians, EqualTimesAreAmbiguousAndConstantOnesExact) {
  const std::vector<double> nine = {9, 9, 9, 9, 9}, three = {3, 3, 3, 3, 3};
  EXPECT_EQ(math::compare(math::ratio_of_medians(nine, nine).interval()), Verdict::kAmbiguous);
  const math::Ratio ratio = math::ratio_of_medians(three, nine);
  EXPECT_NEAR(ratio.interval().high, 1.0 / 3, 1e-12);
  EXPECT_EQ(ratio.p_value(), 0);
}

TEST(Medians, TellsFasterFromSlower) {
  const std::vector<double> fast = times(10, 100, 1), slow = times(10, 130, 2);
  const math::Ratio ratio = math::ratio_of_medians(fast, slow), inverse = math::ratio_of_medians(slow, fast);
  EXPECT_NEAR(ratio.value, 100.0 / 130, 0.05);
  EXPECT_EQ(math::compare(ratio.interval()), Verdict::kFaster);
  EXPECT_EQ(math::compare(inverse.interval()), Verdict::kSlower);
  EXPECT_NEAR(ratio.interval().low, 1 / inverse.interval().high, 1e-12);
}

// The interval excludes 1 exactly where the p-value says so.
TEST(Medians, IntervalAndPValueAgree) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const math::Ratio ratio =
        math::ratio_of_medians(times(5, 100, seed), times(7, 100 + seed % 20, seed + 1000));
    for (const double confidence : {0.9, 0.95, 0.998}) {
      EXPECT_EQ(ratio.p_value() < 1 - confidence,
                math::compare(ratio.interval(confidence)) != Verdict::kAmbiguous);
    }
  }
}

TEST(Medians, RefusesWhatHasNoRatio) {
  const std::vector<double> good = {1, 2, 3}, zero = {0, 1, 2}, nan = {NAN, 1, 1};
  EXPECT_THROW(math::ratio_of_medians(good, zero), std::logic_error);
  EXPECT_THROW(math::ratio_of_medians(good, nan), std::logic_error);
  EXPECT_THROW(math::ratio_of_medians({}, good), std::logic_error);
}

// Holm's own steps on four p-values: 0.05 / 4, / 3, / 2, / 1 from the smallest on, and no further than the first failure.
TEST(Medians, HolmsLevels) {
  const auto near = [](const std::vector<double>& p, const std::vector<double>& expected) {
    const std::vector<double> found = math::holm_confidences(p);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(1 - found[i], expected[i], 1e-12) << i;
  };
  near({0.2}, {0.05});
  near({0.03, 0.001, 0.5, 0.012}, {0.05 / 2, 0.05 / 4, 0.05 / 2, 0.05 / 3});
  near({0.02, 0.03}, {0.05 / 2, 0.05});  // 0.02 < 0.025, and then 0.03 < 0.05
  near({0.03, 0.03}, {0.05 / 2, 0.05 / 2});
  EXPECT_TRUE(math::holm_confidences({}).empty());
}

double quotient(std::span<const double> sides) { return sides[0] / sides[1]; }

math::Estimate quotient_of(std::vector<double> a, std::vector<double> b) {
  return math::estimate(std::vector<std::vector<double>>{std::move(a), std::move(b)}, quotient);
}

TEST(Estimates, OfExactSidesAreExact) {
  const math::Estimate found = quotient_of({6}, {3});
  EXPECT_EQ(found.value, 2);
  EXPECT_EQ(found.interval.low, 2);
  EXPECT_EQ(found.interval.high, 2);
}

TEST(Estimates, OfOneVaryingSideAreThoseOfItsMedian) {
  const std::vector<double> a = times(7, 100, 1);
  const math::Ratio same = math::ratio_of_medians(a, std::vector<double>(7, 4.0));
  const math::Estimate found = quotient_of(a, {4});
  EXPECT_DOUBLE_EQ(found.value, same.value);
  EXPECT_NEAR(std::log(found.interval.high / found.value),
              same.standard_error * math::student_quantile(0.95, 6), 1e-12);
}

// A change that moves both sides of an index alike is no part of the quotient's spread.
TEST(Estimates, SidesOfAsManyValuesBelongTogetherByIndex) {
  const std::vector<double> a = times(7, 100, 1);
  std::vector<double> twice = a;
  for (double& x : twice) x *= 2;
  const math::Estimate found = quotient_of(twice, a);
  EXPECT_NEAR(found.interval.low, 2, 1e-9);
  EXPECT_NEAR(found.interval.high, 2, 1e-9);
}

TEST(Estimates, UnlikeSidesAddTheirVariances) {
  const std::vector<double> a = times(7, 100, 1), b = times(9, 50, 2);
  const math::Ratio welch = math::ratio_of_medians(a, b);
  const math::Estimate found = quotient_of(a, b);
  EXPECT_NEAR(found.interval.low, welch.interval().low, 1e-9);
  EXPECT_NEAR(found.interval.high, welch.interval().high, 1e-9);
}

TEST(Estimates, DifferencesMayBeOfEitherSign) {
  const math::Estimate found = math::estimate(std::vector<std::vector<double>>{{1, 2, 3, 4, 5}, {3}},
                                              [](std::span<const double> s) { return s[0] - s[1]; });
  EXPECT_EQ(found.value, 0);
  EXPECT_NEAR(found.interval.low, -found.interval.high, 1e-12);
  EXPECT_GT(found.interval.high, 1.5);
}

TEST(Estimates, OfFewValuesSayNothing) {
  EXPECT_TRUE(std::isinf(quotient_of({1, 2, 3, 4}, {3}).interval.high));
  EXPECT_TRUE(std::isinf(quotient_of(times(5, 1, 1), {1, 2}).interval.low));
}

}  // namespace
}  // namespace kv
