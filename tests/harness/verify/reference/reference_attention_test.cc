// The oracle has no oracle, so it is held against hand-computed cases and against what any softmax attention
// must obey.
#include "harness/verify/reference/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace kv::reference {
namespace {

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  std::generate(values.begin(), values.end(), [&] { return normal(engine); });
  return values;
}

TEST(Reference, AgreesWithAHandComputedCase) {
  // scores (1 * 2, 1 * 0) / sqrt(4) = (1, 0), so p = (e, 1) / (e + 1)
  const std::vector<float> q = {1, 0, 0, 0}, k = {2, 9, 9, 9, 0, 5, 5, 5}, v = {1, 0, 0, 8, 0, 1, 0, 4};
  const HeadResult result = attend(q, k, v, 2);
  const double p = std::exp(1) / (std::exp(1) + 1);
  EXPECT_NEAR(result.probabilities[0], p, 1e-15);
  EXPECT_NEAR(result.probabilities[1], 1 - p, 1e-15);
  EXPECT_NEAR(result.out[0], p, 1e-15);
  EXPECT_NEAR(result.out[1], 1 - p, 1e-15);
  EXPECT_EQ(result.out[2], 0);
  EXPECT_NEAR(result.out[3], 4 + 4 * p, 1e-14);
}

TEST(Reference, ASinkTakesItsShareAndACapBendsScores) {
  // The same beside a sink of log 2: (e, 1, 2) / (e + 3).
  const std::vector<float> q = {1, 0, 0, 0}, k = {2, 9, 9, 9, 0, 5, 5, 5}, v = {1, 0, 0, 8, 0, 1, 0, 4};
  const double e = std::exp(1);
  const HeadResult with_sink = attend(q, k, v, 2, {.sink = std::log(2)});
  EXPECT_NEAR(with_sink.probabilities[0], e / (e + 3), 1e-15);
  EXPECT_NEAR(with_sink.probabilities[1], 1 / (e + 3), 1e-15);
  EXPECT_NEAR(with_sink.sink, 2 / (e + 3), 1e-15);
  EXPECT_NEAR(with_sink.out[3], (8 * e + 4) / (e + 3), 1e-14);
  const double capped = std::exp(0.5 * std::tanh(2.0));  // a score of 1; 0 stays 0
  EXPECT_NEAR(attend(q, k, v, 2, {.cap = 0.5}).probabilities[0], capped / (capped + 1), 1e-15);
  EXPECT_NEAR(attend(q, k, v, 2, {.sink = std::log(2), .cap = 0.5}).sink, 2 / (capped + 3), 1e-15)
      << "a sink is not capped";
}

TEST(Reference, OneRowGivesItsValue) {
  const std::vector<float> q = normals(16, 1), k = normals(16, 2), v = normals(16, 3);
  const HeadResult result = attend(q, k, v, 1);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(result.out[i], static_cast<double>(v[i]));
}

TEST(Reference, UniformKeysGiveTheMeanOfV) {
  constexpr int kRows = 1000, kDim = 8;
  const std::vector<float> q = normals(kDim, 1), k(kRows * kDim, 0.5f), v = normals(kRows * kDim, 2);
  const HeadResult result = attend(q, k, v, kRows);
  for (int c = 0; c < kDim; ++c) {
    double mean = 0;
    for (int r = 0; r < kRows; ++r) mean += v[r * kDim + c] / static_cast<double>(kRows);
    EXPECT_NEAR(result.out[c], mean, 1e-14);
  }
  EXPECT_NEAR(result.probabilities.sum(), 1, 1e-12);
}

TEST(Reference, LargeScoresNeitherOverflowNorVanish) {
  const std::vector<float> q(8, 1e4f), v = {1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3};
  std::vector<float> k(16, 1e4f);
  EXPECT_DOUBLE_EQ(attend(q, k, v, 2).out[0], 2) << "two equal scores of 2.8e8";
  std::fill(k.begin(), k.begin() + 8, -1e4f);
  EXPECT_DOUBLE_EQ(attend(q, k, v, 2).out[0], 3) << "-2.8e8 against 2.8e8";
}

TEST(Reference, OrderOfRowsDoesNotMatter) {
  constexpr int kRows = 300, kDim = 16;
  const std::vector<float> q = normals(kDim, 1), k = normals(kRows * kDim, 2), v = normals(kRows * kDim, 3);
  std::vector<int> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  std::vector<float> k2(k.size()), v2(v.size());
  for (int r = 0; r < kRows; ++r) {
    std::copy_n(k.begin() + order[r] * kDim, kDim, k2.begin() + r * kDim);
    std::copy_n(v.begin() + order[r] * kDim, kDim, v2.begin() + r * kDim);
  }
  const HeadResult a = attend(q, k, v, kRows), b = attend(q, k2, v2, kRows);
  EXPECT_LT((a.out - b.out).cwiseAbs().maxCoeff(), 1e-14);
  for (int r = 0; r < kRows; ++r) EXPECT_NEAR(a.probabilities[order[r]], b.probabilities[r], 1e-15);
}

// attend and attend_causal share no arithmetic beyond softmax, so each checks the other, GQA and block
// borders included.
TEST(Reference, CausalEqualsOneQueryAtATime) {
  constexpr int kQHeads = 6, kKvHeads = 2, kTokens = 131, kDim = 8;
  const std::vector<float> q = normals(kQHeads * kTokens * kDim, 1),
                           k = normals(kKvHeads * kTokens * kDim, 2),
                           v = normals(kKvHeads * kTokens * kDim, 3);
  const std::vector<double> out = attend_causal(q, k, v, kQHeads, kKvHeads, kTokens, kDim);
  for (int head = 0; head < kQHeads; ++head) {
    const size_t kv = static_cast<size_t>(head / 3) * kTokens * kDim;
    for (int t = 0; t < kTokens; ++t) {
      const size_t at = static_cast<size_t>(head * kTokens + t) * kDim,
                   seen = static_cast<size_t>(t + 1) * kDim;
      const HeadResult one = attend(std::span(q).subspan(at, kDim), std::span(k).subspan(kv, seen),
                                    std::span(v).subspan(kv, seen), t + 1);
      for (int c = 0; c < kDim; ++c) ASSERT_NEAR(out[at + c], one.out[c], 1e-13) << head << " " << t;
    }
  }
}

TEST(Reference, TheFutureIsInvisible) {
  constexpr int kTokens = 70, kDim = 8;
  const std::vector<float> q = normals(kTokens * kDim, 1), v = normals(kTokens * kDim, 3);
  std::vector<float> k = normals(kTokens * kDim, 2);
  const std::vector<double> before = attend_causal(q, k, v, 1, 1, kTokens, kDim);
  std::fill(k.begin() + 50 * kDim, k.end(), 100.0f);
  const std::vector<double> after = attend_causal(q, k, v, 1, 1, kTokens, kDim);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 50 * kDim, after.begin()));
  EXPECT_NE(before.back(), after.back());
}

TEST(Reference, WrongSizesAreBugs) {
  const std::vector<float> q(8), k(16);
  EXPECT_THROW(attend(q, k, k, 3), std::logic_error);
  EXPECT_THROW(attend(q, k, k, 0), std::logic_error);
  EXPECT_THROW(attend_causal(k, k, k, 1, 2, 1, 8), std::logic_error);
}

// Rotating q and k by their positions, as models do, or k alone by its distance, is the same attention.
TEST(AttendRotated, IsAttentionAfterRope) {
  constexpr int kDim = 8, kRows = 5;
  std::mt19937 engine(4);
  std::normal_distribution<float> normal;
  std::vector<float> q(kDim), k(kRows * kDim), v(k.size());
  for (auto* values : {&q, &k, &v})
    for (float& x : *values) x = normal(engine);
  const std::vector<int64_t> positions = {3, 0, 1017, 4, 777};
  constexpr int64_t kQuery = 1030;
  for (const bool halves : {false, true}) {
    const auto rotated = [&](const float* row, int64_t position) {
      std::vector<float> out(kDim);
      for (int i = 0; i < kDim / 2; ++i) {
        const int a = halves ? i : 2 * i, b = halves ? i + kDim / 2 : 2 * i + 1;
        const double angle = static_cast<double>(position) / std::pow(100.0, 2.0 * i / kDim);
        out[static_cast<size_t>(a)] = static_cast<float>(row[a] * std::cos(angle) - row[b] * std::sin(angle));
        out[static_cast<size_t>(b)] = static_cast<float>(row[a] * std::sin(angle) + row[b] * std::cos(angle));
      }
      return out;
    };
    std::vector<float> rotated_k;
    std::vector<int64_t> distance;
    for (int row = 0; row < kRows; ++row) {
      const auto key = rotated(k.data() + row * kDim, positions[static_cast<size_t>(row)]);
      rotated_k.insert(rotated_k.end(), key.begin(), key.end());
      distance.push_back(kQuery - positions[static_cast<size_t>(row)]);
    }
    const auto want = attend(rotated(q.data(), kQuery), rotated_k, v, kRows);
    const RotationTable rotations(plain_rotation(100.0, kDim, halves), kQuery + 1);
    const auto got = attend_rotated(q, k, v, rotations, distance);
    EXPECT_LT((got.out - want.out).norm(), 1e-6 * want.out.norm());
    EXPECT_GT((got.out - attend(q, k, v, kRows).out).norm(), 1e-2 * want.out.norm());
  }
}

}  // namespace
}  // namespace kv::reference
