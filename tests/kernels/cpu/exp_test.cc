// The exponential under attention's weights, against FP64 over all that it meets: scores less their maximum,
// from 0 down to where f32 has nothing left.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention/attention_weights.h"
#include "tests/kernels/cpu/every_isa.h"

namespace kv {
namespace {

constexpr double kBound = 2.0;  // exp_of_negative()'s, in units of the last place of the exact result

// The last place of an f32 near x; below the normal numbers it stays the same.
double last_place(double x) { return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 23); }

std::vector<float> exponentials(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  cpu::probabilities(x.data(), {.max = 0.0f, .sum = 1.0f}, std::ssize(x), out.data());
  return out;
}

using Exp = test::EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Exp, test::every_isa(), test::isa_name);

// A prime step through all numbers from -0 to -104, small ones too: about a million.
TEST_P(Exp, IsWithinItsBoundAndNotFarBelowIt) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(104.0f); bits += 1009)
    x.push_back(-std::bit_cast<float>(bits));
  const std::vector<float> got = exponentials(x);
  double worst = 0.0;
  float where = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    const double off = std::fabs(static_cast<double>(got[i]) - want) / last_place(want);
    if (off > worst) worst = off, where = x[i];
  }
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LE(worst, kBound) << "at " << where;
  EXPECT_GE(worst, 0.25 * kBound);  // no f32 comes nearer than half a unit: the measure sees errors
}

// The online softmax relies on it: the largest score weighs exactly 1, and a masked one exactly 0.
TEST_P(Exp, TheEndsAreExact) {
  EXPECT_EQ(exponentials({0.0f, -0.0f, -INFINITY, -1000.0f, -3e38f}),
            (std::vector<float>{1.0f, 1.0f, 0.0f, 0.0f, 0.0f}));
}

// A row's bits do not depend on which rows stand beside it.
TEST_P(Exp, EveryPlaceGivesTheSameBits) {
  for (size_t n = 1; n < 40; ++n) {
    const std::vector<float> got = exponentials(std::vector<float>(n, -1.2345f));
    for (const float y : got) ASSERT_EQ(y, got[0]);
    ASSERT_EQ(got[0], exponentials({-1.2345f})[0]);
  }
}

}  // namespace
}  // namespace kv
