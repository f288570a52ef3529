// Few bins keep what many moments add up to, wherever the gaps between them are.
#include "harness/planner/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kv::planner {
namespace {

TEST(Timeline, KeepsTheSumsOfItsMoments) {
  for (const double longest : {1e-4, 0.1, 30.0}) {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    Timeline timeline;
    double now = 0.0, running_s = 0.0, bytes_s = 0.0, lasted = 0.0;
    for (int i = 0; i < 5000; ++i) {
      if (i % 7 == 0) now += longest * uniform(random);
      const double seconds = longest * uniform(random);
      const Moment moment{.running = static_cast<double>(i % 13), .payload_bytes = 1e6 * uniform(random)};
      timeline.add(now, seconds, moment);
      now += seconds;
      lasted += seconds;
      running_s += moment.running * seconds;
      bytes_s += moment.payload_bytes * seconds;
    }
    const std::vector<Moment> bins = timeline.bins();
    ASSERT_LE(bins.size(), Timeline::kMostBins);
    ASSERT_GE(bins.size(), Timeline::kMostBins / 2);
    double binned_running_s = 0.0, binned_bytes_s = 0.0;
    for (size_t i = 0; i < bins.size(); ++i) {
      const double begin = static_cast<double>(i) * timeline.bin_s();
      const double seconds = std::min(timeline.bin_s(), now - begin);
      EXPECT_GT(seconds, 0.0);
      EXPECT_LE(bins[i].running, 12.0 * (1 + 1e-9));
      binned_running_s += bins[i].running * seconds;
      binned_bytes_s += bins[i].payload_bytes * seconds;
    }
    EXPECT_NEAR(binned_running_s, running_s, 1e-9 * running_s);
    EXPECT_NEAR(binned_bytes_s, bytes_s, 1e-9 * bytes_s);
    EXPECT_NEAR(timeline.mean_of_steps().running, running_s / lasted, 1e-9 * running_s / lasted);
  }
}

TEST(Timeline, PutsAMomentWhereItWas) {
  Timeline timeline;
  timeline.add(0.0, 1.0, {.running = 4.0});
  timeline.add(3.0, 1.0, {.waiting = 2.0});
  for (size_t i = 0; const Moment& bin : timeline.bins()) {
    const double begin = static_cast<double>(i++) * timeline.bin_s(), end = begin + timeline.bin_s();
    const bool first = end <= 1.0, second = begin >= 3.0 && end <= 4.0;
    EXPECT_TRUE(!first || std::abs(bin.running - 4.0) < 1e-9) << begin;
    EXPECT_TRUE(begin < 1.0 || bin.running == 0.0) << begin;
    EXPECT_TRUE(!second || std::abs(bin.waiting - 2.0) < 1e-9) << begin;
    EXPECT_TRUE(end > 3.0 || bin.waiting == 0.0) << begin;
  }
}

}  // namespace
}  // namespace kv::planner
