// The FP64 selections by hand.
#include "harness/verify/reference/selection.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kv::reference {
namespace {

// Two channels, five keys, pages of two; two query heads.
const std::vector<float> kKeys = {1, -1, 2, 0, -3, 4, 0, 5, 1, 1};
const std::vector<float> kQueries = {1, 2, -1, 1};
const SelectionHead kHead{.q = kQueries, .k = kKeys, .head_dim = 2, .rows = 5, .terms = {{}, {}}};

TEST(ReferenceSelection, QuestByHand) {
  const Candidates of = *candidates_of("quest", {{"page", 2}, {"top", 50}, {"least", 1}}, kHead);
  // Page 0 has channels in [1, 2] and [-1, 0]: 2 + 0 and -1 + 0. Page 1 [-3, 0] and [4, 5]: 0 + 10 and 3 + 5.
  EXPECT_EQ(of.score, (std::vector<double>{1, 18, kInfinite}));
  EXPECT_EQ(of.size, (std::vector<double>{7, 21, 5}));
  EXPECT_EQ(of.rows_each, 2);
  EXPECT_EQ(of.count, 2);  // half of three, rounded up
  EXPECT_EQ(chosen_rows(of, 5), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(candidates_of("quest", {{"page", 2}, {"top", 50}, {"least", 9}}, kHead)->count, 3);
}

TEST(ReferenceSelection, QuestsBoundsHaveSixteenBits) {
  const std::vector<float> keys = {1.0f + 0x1p-12f, 1e9f}, q = {1, 1};
  const Candidates of =
      *candidates_of("quest", {{"page", 1}, {"top", 100}, {"least", 1}},
                     {.q = std::span(q).first(1), .k = keys, .head_dim = 1, .rows = 2, .terms = {{}}});
  EXPECT_EQ(of.score.front(), 1.0);
  EXPECT_EQ(of.size.back(), 65504.0);
}

TEST(ReferenceSelection, TopkByHand) {
  const Candidates of = *candidates_of("topk", {{"rows", 2}}, kHead);
  double sum = 0.0;
  for (const double weight : of.score) sum += weight;
  EXPECT_NEAR(sum, 2.0, 1e-12);  // one for each of two heads
  // Scores of the heads, times sqrt(2): -1 2 5 10 3 and -2 -2 7 5 0.
  const double b = std::exp(-2 / std::sqrt(2.0));
  EXPECT_NEAR(of.score[3], 0.9614 + b * 0.7977, 5e-4);
  EXPECT_EQ(chosen_rows(of, 5), (std::vector<int64_t>{2, 3}));
}

TEST(ReferenceSelection, MissesAreCountedAndMeasured) {
  const Candidates of{.score = {4, 3, 2, kInfinite}, .size = {10, 10, 20, 10}, .rows_each = 2, .count = 2};
  const auto miss = [&](std::vector<int64_t> read) { return miss_of(of, read, 7); };
  EXPECT_EQ(miss({0, 1, 6}).worst, 0.0);
  EXPECT_EQ(miss({0, 1, 6}).disputed, 0);
  EXPECT_DOUBLE_EQ(miss({2, 3, 6}).worst, 0.1);  // 3 in place of 4, of 10
  EXPECT_DOUBLE_EQ(miss({4, 5, 6}).worst, 0.1);  // 2 in place of 4, of 20
  EXPECT_EQ(miss({4, 5, 6}).disputed, 1);
  EXPECT_TRUE(std::isinf(miss({0, 1, 2, 3}).worst));  // the one that must be read is not
  EXPECT_TRUE(std::isinf(miss({0, 1}).worst));        // too few
  EXPECT_TRUE(std::isinf(miss({0, 6}).worst));        // half a page
}

TEST(ReferenceSelection, OthersHaveNone) { EXPECT_FALSE(candidates_of("all", {}, kHead)); }

}  // namespace
}  // namespace kv::reference
