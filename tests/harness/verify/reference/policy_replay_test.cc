// The FP64 policies against hand-made cases; and following, which must see a wrong choice as well as excuse a
// near tie.
#include "harness/verify/reference/policy_replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

#include "harness/verify/reference/attention.h"

namespace kv::reference {
namespace {

constexpr int kHeadDim = 8;

// One head, whose keys lie on one axis: every query gives token t the score `score[t]`.
struct Scored {
  std::vector<float> q, k, v;
  explicit Scored(const std::vector<float>& score) : q(score.size() * kHeadDim), k(q.size()), v(q.size()) {
    for (size_t t = 0; t < score.size(); ++t) {
      q[t * kHeadDim] = std::sqrt(static_cast<float>(kHeadDim));
      k[t * kHeadDim] = score[t];
      for (size_t c = 0; c < kHeadDim; ++c) v[t * kHeadDim + c] = static_cast<float>(t);
    }
  }
  PolicyInput input(int64_t prompt = 0) const {
    return {.q = q,
            .k = k,
            .v = v,
            .raw_k = {},
            .n = static_cast<int64_t>(k.size()) / kHeadDim,
            .head_dim = kHeadDim,
            .prompt = prompt};
  }
};

using Slots = std::vector<int64_t>;

TEST(PolicyReplay, FullIsCausalAttention) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  constexpr int kTokens = 40;
  std::vector<float> q(4 * kTokens * kHeadDim), k(2 * kTokens * kHeadDim), v(k.size());
  for (auto* values : {&q, &k, &v})
    for (float& x : *values) x = normal(engine);
  const PolicyInput in{
      .q = q, .k = k, .v = v, .raw_k = {}, .q_heads = 4, .kv_heads = 2, .n = kTokens, .head_dim = kHeadDim};
  const std::vector<double> want = attend_causal(q, k, v, 4, 2, kTokens, kHeadDim);
  const PolicyRun run = run_policy({.name = "full"}, in);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(run.out[i], want[i], 1e-13);
  EXPECT_EQ(run.kept[1][2], (Slots{0, 1, 2}));
}

TEST(PolicyReplay, Ring) {
  const Scored tokens(std::vector<float>(8, 0.0f));
  const PolicyRun run =
      run_policy({.name = "ring", .parameters = {{"window", 2}, {"sinks", 1}}}, tokens.input());
  EXPECT_EQ(run.kept[0][2], (Slots{0, 1, 2}));
  EXPECT_EQ(run.kept[0][3], (Slots{0, 3, 2}));
  EXPECT_EQ(run.kept[0][7], (Slots{0, 7, 6}));
  EXPECT_NEAR(run.out[7 * kHeadDim], (0 + 7 + 6) / 3.0, 1e-14) << "equal scores: the mean of v";
}

// Equal scores: after 3 tokens the accumulated weights are 1 + 1/2 + 1/3, 1/2 + 1/3 and 1/3.
TEST(PolicyReplay, H2oAddsUpWeightsAndSparesTheRecent) {
  const Scored tokens(std::vector<float>(5, 0.0f));
  EXPECT_EQ(
      run_policy({.name = "h2o", .parameters = {{"heavy", 2}, {"recent", 1}}}, tokens.input()).kept[0][3],
      (Slots{0, 1, 3}));
  EXPECT_EQ(
      run_policy({.name = "h2o", .parameters = {{"heavy", 1}, {"recent", 2}}}, tokens.input()).kept[0][3],
      (Slots{0, 3, 2}));
  EXPECT_EQ(
      run_policy({.name = "h2o", .parameters = {{"heavy", 0}, {"recent", 3}}}, tokens.input()).kept[0][4],
      (Slots{3, 4, 2}));
}

TEST(PolicyReplay, TovaLooksAtTheLastQueryAndKNormAtKeys) {
  const Scored tokens({-1, 3, 2, 0.5, 0});
  EXPECT_EQ(run_policy({.name = "tova", .parameters = {{"budget", 2}}}, tokens.input()).kept[0][4],
            (Slots{4, 1}));
  EXPECT_EQ(run_policy({.name = "knorm", .parameters = {{"budget", 2}}}, tokens.input()).kept[0][4],
            (Slots{4, 3}));
  PolicyInput in = tokens.input();
  const Scored raw({9, 1, 1, 1, 1});
  in.raw_k = raw.k;
  EXPECT_EQ(run_policy({.name = "knorm", .parameters = {{"budget", 2}}}, in).kept[0][4], (Slots{4, 1}))
      << "norms are of raw keys";
}

TEST(PolicyReplay, SnapKvCutsThePromptOnce) {
  std::vector<float> score(12, 0.0f);
  score[2] = 5.0f;
  const Scored tokens(score);
  const Policy policy{.name = "snapkv", .parameters = {{"window", 2}, {"budget", 5}, {"kernel", 3}}};
  const PolicyRun run = run_policy(policy, tokens.input(9));
  EXPECT_EQ(run.kept[0][7].size(), 8u) << "the prompt attends in full";
  EXPECT_EQ(run.kept[0][8], (Slots{1, 2, 3, 7, 8}));
  EXPECT_EQ(run.kept[0][11], (Slots{1, 2, 3, 7, 8, 9, 10, 11}));
  EXPECT_EQ(run_policy(policy, tokens.input(5)).kept[0][11].size(), 12u) << "a prompt that fits";
}

TEST(PolicyReplay, FollowingTheOwnChoicesChangesNothing) {
  const Scored tokens({1, 3, 2, 0.5, 0, 2.5, 1.5, 0.25});
  const Policy policy{.name = "h2o", .parameters = {{"heavy", 2}, {"recent", 1}}};
  const PolicyRun run = run_policy(policy, tokens.input());
  const PolicyRun again = run_policy(policy, tokens.input(), &run.kept);
  EXPECT_EQ(again.out, run.out);
  EXPECT_EQ(again.choices, 5);
  EXPECT_EQ(again.disputed, 0);
  EXPECT_EQ(again.worst_miss, 0.0);
}

TEST(PolicyReplay, FollowingSeesAWrongChoice) {
  const Scored tokens({1, 2, 0, 0});
  const Policy policy{.name = "tova", .parameters = {{"budget", 3}}};
  KeptTokens kept{{{0}, {0, 1}, {0, 1, 2}, {3, 1, 2}}};  // the least is token 2; 0 weighs e times that
  const PolicyRun run = run_policy(policy, tokens.input(), &kept);
  EXPECT_EQ(run.choices, 1);
  EXPECT_EQ(run.disputed, 1);
  EXPECT_NEAR(run.worst_miss, std::exp(1.0) - 1.0, 1e-6);
  EXPECT_EQ(run.kept[0][3], (Slots{3, 1, 2})) << "and goes on from there";
}

TEST(PolicyReplay, FollowingMeasuresANearTie) {
  const Scored tokens({1.000001f, 2, 1, 0});
  const KeptTokens kept{{{0}, {0, 1}, {0, 1, 2}, {3, 1, 2}}};
  const PolicyRun run = run_policy({.name = "tova", .parameters = {{"budget", 3}}}, tokens.input(), &kept);
  EXPECT_EQ(run.disputed, 1);
  EXPECT_GT(run.worst_miss, 5e-7);
  EXPECT_LT(run.worst_miss, 2e-6);
}

TEST(PolicyReplay, FollowingSeesABrokenRule) {
  const Scored tokens({0, 0, 0, 0, 0});
  const auto worst = [&](const Policy& policy, const Slots& last) {
    KeptTokens kept = run_policy(policy, tokens.input()).kept;
    kept[0][4] = last;
    return run_policy(policy, tokens.input(), &kept).worst_miss;
  };
  const Policy h2o{.name = "h2o", .parameters = {{"heavy", 1}, {"recent", 2}}};
  EXPECT_EQ(worst(h2o, {0, 3, 4}), 0.0);
  EXPECT_TRUE(std::isinf(worst(h2o, {0, 4, 2}))) << "a protected token went";
  EXPECT_TRUE(std::isinf(worst(h2o, {0, 3, 2}))) << "the new token is not there";
  EXPECT_TRUE(std::isinf(worst(h2o, {1, 3, 4}))) << "a token came back";
  EXPECT_TRUE(std::isinf(worst(h2o, {0, 4}))) << "a slot is missing";
  EXPECT_TRUE(std::isinf(worst({.name = "random", .parameters = {{"budget", 3}, {"seed", 0}}}, {4, 4, 4})));
}

TEST(PolicyReplay, FollowingJudgesTheCutOfAPrompt) {
  const Scored tokens({3, 0, 2, 1, 0, 0});
  const Policy policy{.name = "snapkv", .parameters = {{"window", 2}, {"budget", 4}, {"kernel", 1}}};
  const auto follow = [&](const Slots& last) {
    KeptTokens kept{std::vector<Slots>(6)};
    kept[0][5] = last;
    return run_policy(policy, tokens.input(6), &kept);
  };
  EXPECT_EQ(follow({0, 2, 4, 5}).worst_miss, 0.0);
  EXPECT_NEAR(follow({0, 3, 4, 5}).worst_miss, 1.0 - std::exp(-1.0), 1e-6) << "token 3 instead of token 2";
  EXPECT_TRUE(std::isinf(follow({0, 2, 3, 5}).worst_miss)) << "the window is incomplete";
}

TEST(PolicyReplay, APolicyIsFoundByName) {
  EXPECT_EQ(find_oracle("h2o")->name, "h2o");
  EXPECT_EQ(find_oracle("lru"), nullptr);
}

TEST(PolicyReplay, WhatCannotBeIsABug) {
  const Scored tokens({0, 0});
  EXPECT_THROW(run_policy({.name = "lru", .parameters = {{"budget", 2}}}, tokens.input()), std::logic_error);
  EXPECT_THROW(run_policy({.name = "tova"}, tokens.input()), std::logic_error);
  PolicyInput in = tokens.input();
  in.n = 3;
  EXPECT_THROW(run_policy({.name = "full"}, in), std::logic_error);
}

}  // namespace
}  // namespace kv::reference
