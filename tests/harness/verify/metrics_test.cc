#include "harness/verify/metrics/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace kv {
namespace {

double compute(std::string_view name, const std::vector<double>& got, const std::vector<double>& want) {
  for (const verify::Metric* metric : verify::metrics()) {
    if (metric->column.name == name) return metric->compute(got, want);
  }
  throw std::logic_error("no such metric");
}

TEST(Metrics, AgreeWithHandComputedValues) {
  const std::vector<double> got = {3, 4, 1}, want = {3, 0, 4};
  EXPECT_DOUBLE_EQ(compute("err_max_abs", got, want), 4);
  EXPECT_DOUBLE_EQ(compute("err_rel_l2", got, want), 1);  // |(0, 4, -3)| / |(3, 0, 4)|
  EXPECT_DOUBLE_EQ(compute("err_cosine", got, want), 13 / (std::sqrt(26.0) * 5));
  EXPECT_DOUBLE_EQ(compute("err_cosine", {-3, 4}, {3, 4}), 7.0 / 25);
  EXPECT_DOUBLE_EQ(compute("err_cosine", {-3, -4}, {3, 4}), -1);
  EXPECT_DOUBLE_EQ(compute("err_attn_kl", {0.25, 0.75}, {0.5, 0.5}),
                   0.5 * std::log(2) + 0.5 * std::log(2.0 / 3));
}

// FP64's weights of all tokens, and those of the ones that were read.
TEST(Metrics, WhatIsReadOfAttention) {
  const std::vector<double> all = {0.5, 0.1, 0.3, 0.1};
  EXPECT_DOUBLE_EQ(compute("err_attn_mass", all, {0.8, 0.2, 0, 0}), 0.6);
  EXPECT_EQ(compute("err_attn_recall", all, {0.8, 0.2, 0, 0}),
            0.5);  // the true two are the first and the third
  EXPECT_EQ(compute("err_attn_recall", all, {0.6, 0, 0.4, 0}), 1);
  EXPECT_EQ(compute("err_attn_recall", all, {0, 0.5, 0, 0.5}), 0);
  EXPECT_EQ(compute("err_attn_recall", all, {0.6, 0, 0.3, 0.1}), 1);  // either of equal weights
  EXPECT_EQ(compute("err_attn_recall", all, {0, 0, 0, 0}), 0);
  EXPECT_DOUBLE_EQ(compute("err_attn_mass", all, all), 1);
  EXPECT_EQ(compute("err_attn_recall", all, all), 1);
}

TEST(Metrics, EqualInputsAreBest) {
  const std::vector<double> p = {0.1, 0.2, 0.7, 0};
  EXPECT_EQ(compute("err_max_abs", p, p), 0);
  EXPECT_EQ(compute("err_rel_l2", p, p), 0);
  EXPECT_NEAR(compute("err_cosine", p, p), 1, 1e-15);
  EXPECT_EQ(compute("err_attn_kl", p, p), 0);
}

TEST(Metrics, ZerosHaveAMeaning) {
  EXPECT_EQ(compute("err_rel_l2", {0, 0}, {0, 0}), 0);
  EXPECT_TRUE(std::isinf(compute("err_rel_l2", {1, 0}, {0, 0})));
  EXPECT_EQ(compute("err_cosine", {0, 0}, {0, 0}), 1);
  EXPECT_EQ(compute("err_cosine", {1, 0}, {0, 0}), 0);
  EXPECT_TRUE(std::isinf(compute("err_attn_kl", {1, 0}, {0.5, 0.5})));
  EXPECT_DOUBLE_EQ(compute("err_attn_kl", {0.5, 0.5}, {1, 0}), std::log(2));
}

TEST(Metrics, NanIsNeverHidden) {
  for (const verify::Metric* metric : verify::metrics()) {
    for (size_t i = 0; i < 5; ++i) {
      std::vector<double> got = {0.2, 0.2, 0.2, 0.2, 0.2}, want = {0.5, 0.5, 0, 0, 0};
      got[i] = NAN;
      EXPECT_TRUE(std::isnan(metric->compute(got, want))) << metric->column.name << " at " << i;
    }
  }
}

TEST(Metrics, RefuseDifferentSizes) {
  for (const verify::Metric* metric : verify::metrics()) {
    EXPECT_THROW(metric->compute(std::vector<double>{1}, std::vector<double>{1, 2}), std::logic_error);
  }
}

TEST(Metrics, EveryRowIsFilledIn) {
  for (const verify::Metric* metric : verify::metrics()) {
    EXPECT_TRUE(metric->column.name.starts_with("err_"));
    EXPECT_FALSE(metric->column.unit.empty() || metric->column.meaning.empty());
    EXPECT_TRUE(metric->better == "lower" || metric->better == "higher");
  }
}

}  // namespace
}  // namespace kv
