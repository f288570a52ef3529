// Intervals over clusters of samples: what they are when computed another way, and that they widen where samples repeat.
#include "harness/math/clusters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace kv::math {
namespace {

TEST(Clusters, OfEqualSamplesAreAPoint) {
  const std::vector<int64_t> cluster{7, 7, 1, 2, 3, 4, 4};
  const Clusters clusters(cluster);
  EXPECT_EQ(clusters.count(), 5);
  const std::vector<double> same(7, 3.5);
  for (const double p : {1.0, 50.0, 99.0}) {
    EXPECT_EQ(clusters.percentile_interval(same, p).low, 3.5);
    EXPECT_EQ(clusters.percentile_interval(same, p).high, 3.5);
  }
  EXPECT_EQ(clusters.mean_interval(same).low, 3.5);
  EXPECT_THROW(clusters.percentile_interval(std::vector<double>(3), 50), std::logic_error);
  EXPECT_THROW(clusters.mean_interval(std::vector<double>(3)), std::logic_error);
}

TEST(Clusters, FewSayNothing) {
  const Clusters clusters(std::vector<int64_t>{1, 1, 2, 3, 4});
  EXPECT_TRUE(std::isinf(clusters.percentile_interval(std::vector<double>(5), 50).high));
  EXPECT_TRUE(std::isinf(clusters.mean_interval(std::vector<double>(5)).low));
}

// The median of n independent samples lies within 1.96 standard errors, 1.2533 / sqrt(n) for a normal distribution; with each
// sample four times in its cluster nothing is learnt, and the interval stays that wide.
TEST(Clusters, RepeatedSamplesDoNotNarrowAnInterval) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  constexpr int kCount = 2000;
  std::vector<double> once, often;
  std::vector<int64_t> alone, together;
  for (int i = 0; i < kCount; ++i) {
    once.push_back(normal(random));
    alone.push_back(i);
    for (int copy = 0; copy < 4; ++copy) {
      often.push_back(once.back());
      together.push_back(i);
    }
  }
  const double width = 2 * 1.96 * 1.2533 / std::sqrt(kCount);
  const ConfidenceInterval of_once = Clusters(alone).percentile_interval(once, 50);
  const ConfidenceInterval of_often = Clusters(together).percentile_interval(often, 50);
  EXPECT_NEAR(of_once.high - of_once.low, width, 0.25 * width);
  EXPECT_NEAR(of_often.high - of_often.low, width, 0.25 * width);
  EXPECT_TRUE(of_once.contains(median(once)));
}

TEST(Clusters, HighPercentilesLieAmongTheHighestSamples) {
  std::vector<double> samples;
  std::vector<int64_t> cluster;
  for (int i = 0; i < 1000; ++i) {
    samples.push_back(i);
    cluster.push_back(i % 100);
  }
  const ConfidenceInterval p99 = Clusters(cluster).percentile_interval(samples, 99);
  EXPECT_LT(p99.low, 990.0);
  EXPECT_GT(p99.high, 985.0);
  EXPECT_GE(p99.low, 950.0);
  EXPECT_LE(p99.high, 999.0);
}

}  // namespace
}  // namespace kv::math
