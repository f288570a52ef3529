// The synthetic family whose keys have a mean.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "harness/workload/workload.h"

namespace kv {
namespace {

using workload::make_synthetic;

constexpr workload::WorkloadShape kShape{.layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 128};
constexpr int kTokens = 8;

TEST(Offsets, AreGaussianRowsBesideAFixedOffsetInFewChannels) {
  const size_t size = size_t{2} * kTokens * 128;
  std::vector<float> q(2 * size), k(size), v(size), plain_q(2 * size), plain_k(size), plain_v(size);
  const auto offsets = make_synthetic("offsets", kShape, 3), gaussian = make_synthetic("gaussian", kShape, 3);
  offsets->read(1, 1, 5, kTokens, q.data(), k.data(), v.data());
  gaussian->read(1, 1, 5, kTokens, plain_q.data(), plain_k.data(), plain_v.data());
  EXPECT_EQ(q, plain_q);
  EXPECT_EQ(v, plain_v);
  int moved[2] = {}, negative = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t head = i / (kTokens * 128), c = i % 128;
    const double offset = double{k[i]} - double{plain_k[i]};
    const double first = double{k[head * kTokens * 128 + c]} - double{plain_k[head * kTokens * 128 + c]};
    EXPECT_NEAR(offset, first, 1e-5) << "the same for all tokens";
    if (offset == 0.0) continue;
    EXPECT_GT(std::abs(offset), 11.9);
    EXPECT_LT(std::abs(offset), 40.1);
    ++moved[head];
    negative += offset < 0;
  }
  for (const int n : moved) EXPECT_EQ(n, kTokens * 128 / 32);
  EXPECT_GT(negative, 0);
  EXPECT_LT(negative, 2 * kTokens * 128 / 32);
}

}  // namespace
}  // namespace kv
