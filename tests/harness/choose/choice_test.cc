#include "harness/choose/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "harness/math/stats.h"

namespace kv {
namespace {

using choose::Candidate;
using choose::ExtraLoss;

// A loss whose Student's interval of 1,000 stretches ends there.
ExtraLoss around(double value, double low) { return {value, (value - low) / 1.962341, 999}; }

TEST(Choice, BoundsOfMoreCachesAreWider) {
  const ExtraLoss loss{0.01, 1, 1e6};
  EXPECT_NEAR(choose::upper_bound(loss, 1), 0.01 + 1.644854, 1e-3);
  EXPECT_NEAR(choose::upper_bound(loss, 2), 0.01 + 1.959964, 1e-3);
  EXPECT_NEAR(choose::upper_bound(loss, 5), 0.01 + 2.326348, 1e-3);
  const ExtraLoss few{0.01, 1, 15};  // of 16 stretches
  EXPECT_NEAR(few.low(), 0.01 - 2.131450, 1e-5);
  EXPECT_NEAR(choose::upper_bound(few, 6), 0.01 + 2.694, 1e-3);
}

TEST(Choice, TheBestItsEqualsAndTheSmallestAreConfirmed) {
  const std::vector<Candidate> candidates{
      {"too large", 900, around(0.000, -0.001)}, {"best", 800, around(0.001, 0.0)},
      {"equal", 700, around(0.002, 0.001)},      {"equal, smaller", 600, around(0.003, 0.002)},
      {"worse", 500, around(0.006, 0.005)},      {"worse, smaller", 400, around(0.008, 0.007)},
      {"over", 300, around(0.020, 0.009)},
  };
  using Indices = std::vector<size_t>;
  EXPECT_EQ(choose::to_confirm(candidates, 850, 0.01, 6), (Indices{1, 3, 2, 5, 4}));
  EXPECT_EQ(choose::to_confirm(candidates, 850, 0.01, 3), (Indices{1, 3, 5}));
  EXPECT_EQ(choose::to_confirm(candidates, 850, 0.001, 6), (Indices{1, 3, 2}));
  EXPECT_EQ(choose::to_confirm(candidates, 350, 0.01, 6), (Indices{6}));
  EXPECT_EQ(choose::to_confirm(candidates, 250, 0.01, 6), Indices{});
}

TEST(Choice, TheLimitIsForBoundsAndTiesForIntervals) {
  std::vector<Candidate> candidates{
      {"a", 800, {}, around(0.001, 0.000)},
      {"b", 700, {}, around(0.003, 0.0015)},
      {"c", 600, {}, around(0.006, 0.005)},
      {"d", 500, {}, around(0.0095, 0.009)},
      {"e", 400, {}},
  };
  const choose::Choice choice = choose::choice_of(candidates, 0.01);
  EXPECT_EQ(choice.best, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(choice.fewest, 2u);  // d's interval ends at the limit, and its bound, one of four, lies beyond
  EXPECT_TRUE(choose::choice_of(candidates, 0.001).best.empty());
}

TEST(Choice, ARateIsKeptByItsWholeInterval) {
  std::vector<Candidate> candidates{
      {"a", 800, {}, around(0.001, 0.000), choose::Rate{20, 18, 22}},
      {"b", 700, {}, around(0.001, 0.000), choose::Rate{17, 16, 18}},
      {"not timed", 600, {}, around(0.001, 0.000)},
      {"over", 500, {}, around(0.02, 0.01), choose::Rate{30, 29, 31}},
  };
  EXPECT_EQ(choose::keeping(candidates, 0.01), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(choose::choice_of(candidates, 0.01, 17).best, (std::vector<size_t>{0}));
  EXPECT_EQ(choose::choice_of(candidates, 0.01, 17).fewest, 0u);
  EXPECT_EQ(choose::choice_of(candidates, 0.01, 16).best, (std::vector<size_t>{1, 0}));
  EXPECT_TRUE(choose::choice_of(candidates, 0.01, 20).best.empty());
}

// Losses of stretches of 64 tokens around each cache's true loss, skewed to the right as real ones are.
ExtraLoss read(double true_loss, int stretches, std::mt19937& engine) {
  std::gamma_distribution<double> skewed(2.0, 0.02);
  std::normal_distribution<double> normal(0.0, 0.02);
  std::vector<math::Stretch> drawn;
  for (int i = 0; i < stretches; ++i)
    drawn.push_back({64 * (true_loss + skewed(engine) - 0.04 + normal(engine)), 64});
  return {math::mean_of(drawn), math::standard_error(drawn), stretches - 1.0};
}

// The guarantee: of simulated choices at most 5 % name a cache whose true loss is above the limit. Caches lie as near to the limit as
// is hard, and are calibrated before, on other text.
TEST(Choice, KeepsTheLimitInNineteenOfTwentyRuns) {
  constexpr double kLimit = 0.01;
  constexpr int kChoices = 200;
  for (const int stretches : {32, 128}) {
    std::mt19937 engine(static_cast<uint32_t>(stretches));
    std::uniform_real_distribution<double> near(0.006, 0.014);
    int named = 0, broken = 0;
    for (int run = 0; run < kChoices; ++run) {
      std::vector<Candidate> candidates;
      std::vector<double> true_losses;
      for (int i = 0; i < 12; ++i) {
        true_losses.push_back(near(engine));
        candidates.push_back({"cache", 100 + i, read(true_losses.back(), stretches, engine)});
      }
      for (const size_t i : choose::to_confirm(candidates, 1000, kLimit, 6))
        candidates[i].confirmed = read(true_losses[i], stretches, engine);
      const choose::Choice choice = choose::choice_of(candidates, kLimit);
      if (choice.best.empty()) continue;
      ++named;
      broken += true_losses[*choice.fewest] > kLimit ||
                std::any_of(choice.best.begin(), choice.best.end(),
                            [&](size_t i) { return true_losses[i] > kLimit; });
    }
    EXPECT_GT(named, kChoices / 50) << stretches;  // it is not kept by naming none
    EXPECT_LE(broken, kChoices * 0.05) << stretches;
  }
}

}  // namespace
}  // namespace kv
