// A model's matrix products against sums in FP64, however many threads form them, and what is counted of them.
#include "harness/model/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "harness/memory/run_context.h"
#include "harness/model/step_parts.h"
#include "harness/model/weights.h"
#include "kernels/math.h"

namespace kv {
namespace {

using model::Matrix;
using model::WeightMatrix;

Matrix random_matrix(int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m(rows, cols);
  for (int64_t i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
  return m;
}

// `values` as they are stored, at an even address that is no multiple of four.
std::vector<std::byte> stored(const Matrix& values, WeightMatrix::Type type) {
  const size_t size = type == WeightMatrix::Type::kF32 ? 4 : 2;
  std::vector<std::byte> bytes(static_cast<size_t>(values.size()) * size + 2);
  for (int64_t i = 0; i < values.size(); ++i) {
    const float value = values.data()[i];
    const uint16_t half = type == WeightMatrix::Type::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (size == 4)
      std::memcpy(bytes.data() + 2 + 4 * i, &value, 4);
    else
      std::memcpy(bytes.data() + 2 + 2 * i, &half, 2);
  }
  return bytes;
}

constexpr WeightMatrix::Type kTypes[] = {WeightMatrix::Type::kF32, WeightMatrix::Type::kF16,
                                         WeightMatrix::Type::kBf16};

// So a cache's predictions do not depend on the caches that are read beside it.
TEST(WeightMatrix, GivesARowTheSameBitsWhateverIsBesideIt) {
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{144, 576}, {50, 1536}, {20, 32}, {5, 130}}) {
    constexpr int64_t kMost = 48;
    const Matrix x = random_matrix(kMost, in, 1), values = random_matrix(out, in, 2);
    for (const WeightMatrix::Type type : kTypes) {
      const std::vector<std::byte> bytes = stored(values, type);
      const WeightMatrix w(bytes.data() + 2, type, out, in);
      const Matrix all = w.apply(x);
      for (int64_t n = 2; n < kMost; ++n) {
        const Matrix same = w.apply(x.row(0).replicate(n, 1));
        EXPECT_TRUE(same == same.row(0).replicate(n, 1)) << n << " rows of " << in;
        if (n < 9 && type != WeightMatrix::Type::kF32) continue;
        EXPECT_TRUE(w.apply(x.bottomRows(n)) == all.bottomRows(n)) << n << " rows of " << in;
      }
    }
  }
}

TEST(WeightMatrix, MultipliesEveryTypeAndNumberOfTokens) {
  constexpr int64_t kRows = 300, kCols = 700;  // several blocks, of which the last is not whole
  const Matrix values = random_matrix(kRows, kCols, 3);
  for (const WeightMatrix::Type type : kTypes) {
    const std::vector<std::byte> bytes = stored(values, type);
    const WeightMatrix w(bytes.data() + 2, type, kRows, kCols);
    Matrix read(kRows, kCols);
    w.read(0, kRows, read.data());
    for (const int64_t n : {1, 8, 9, 40}) {
      const Matrix x = random_matrix(n, kCols, 4);
      const Eigen::MatrixXd exact = x.cast<double>() * read.cast<double>().transpose();
      const double off = (w.apply(x).cast<double>() - exact).cwiseAbs().maxCoeff();
      EXPECT_LT(off, 2e-4) << n << " tokens";
      EXPECT_GT(off, 0.0) << "sums of f32 are not exact";
    }
  }
}

TEST(WeightMatrix, GivesTheSameSumsWithAnyNumberOfThreads) {
  constexpr int64_t kRows = 900, kCols = 1024;
  const Matrix values = random_matrix(kRows, kCols, 5);
  for (const WeightMatrix::Type type : kTypes) {
    const std::vector<std::byte> bytes = stored(values, type);
    const WeightMatrix w(bytes.data() + 2, type, kRows, kCols);
    for (const int64_t n : {1, 8, 24}) {
      const Matrix x = random_matrix(n, kCols, 6);
      const auto on = [&](int threads) {
        const memory::ThreadCount count(threads);
        return w.apply(x);
      };
      const Matrix one = on(1);
      for (const int threads : {2, 3, 7})
        EXPECT_TRUE(on(threads) == one) << threads << " threads, " << n << " tokens";
    }
  }
}

// Products of bf16 numbers are exact in f32, so that only the order of sums differs from FP64's of the rounded factors.
TEST(WeightMatrix, MultipliesInBf16) {
  if (!model::can_multiply_bf16()) GTEST_SKIP() << "this machine or build multiplies f32 alone";
  constexpr int64_t kRows = 300, kCols = 700;
  const std::vector<std::byte> bytes = stored(random_matrix(kRows, kCols, 3), WeightMatrix::Type::kBf16);
  const WeightMatrix plain(bytes.data() + 2, WeightMatrix::Type::kBf16, kRows, kCols), w = plain.in_bf16();
  Matrix read(kRows, kCols);
  w.read(0, kRows, read.data());
  for (const int64_t n : {1, 8, 9, 16, 80}) {
    const Matrix x = random_matrix(n, kCols, 4), got = w.apply(x);
    const Matrix rounded = x.unaryExpr([](float v) { return bf16_to_f32(f32_to_bf16(v)); });
    const auto off = [&](const Matrix& factor) {
      const Eigen::MatrixXd exact = factor.cast<double>() * read.cast<double>().transpose();
      return (got.cast<double>() - exact).cwiseAbs().maxCoeff();
    };
    EXPECT_LT(off(rounded), 2e-4) << n << " tokens";
    EXPECT_GT(off(x), 0.02) << "activations are rounded";
    EXPECT_LT(off(x), 0.5);
    if (n < 16) continue;
    EXPECT_TRUE(w.apply(x.topRows(n / 2 + 8)) == got.topRows(n / 2 + 8)) << "company changes bits";
  }
}

TEST(ModelWeights, AreRoundedOnceForProductsInBf16) {
  if (!model::can_multiply_bf16()) GTEST_SKIP() << "this machine or build multiplies f32 alone";
  const Matrix values = random_matrix(40, 24, 9);
  const std::vector<std::byte> bytes = stored(values, WeightMatrix::Type::kF32);
  const WeightMatrix wide(bytes.data() + 2, WeightMatrix::Type::kF32, 40, 24);
  model::ModelWeights weights{.path = "test",
                              .config = {},
                              .embedding = wide,
                              .classifier = wide,
                              .final_norm = {},
                              .layers = {},
                              .files = {}};
  weights.layers.emplace_back().up = wide;
  EXPECT_THROW(weights.multiply_in_bf16(2 * 40 * 24 * 2 - 1), std::invalid_argument);
  weights.multiply_in_bf16(2 * 40 * 24 * 2);
  for (const WeightMatrix* m : weights.products()) {
    ASSERT_EQ(m->type(), WeightMatrix::Type::kBf16);
    Matrix read(40, 24);
    m->read(0, 40, read.data());
    EXPECT_TRUE(read == values.unaryExpr([](float v) { return bf16_to_f32(f32_to_bf16(v)); }));
  }
  EXPECT_EQ(weights.embedding.type(), WeightMatrix::Type::kF32) << "it is read, not multiplied";
}

TEST(StepParts, CountsWhatIsMultipliedInItsScopeAlone) {
  const Matrix values = random_matrix(20, 30, 7), x = random_matrix(3, 30, 8);
  const std::vector<std::byte> bytes = stored(values, WeightMatrix::Type::kBf16);
  const WeightMatrix w(bytes.data() + 2, WeightMatrix::Type::kBf16, 20, 30);
  w.apply(x);
  model::StepParts outer;
  w.apply(x);
  {
    const model::StepParts inner;
    w.apply(x);
    w.apply(x.topRows(1));
    EXPECT_EQ(inner.weight_bytes(), 2 * 20 * 30 * 2);
    EXPECT_EQ(inner.multiply_adds(), (3 + 1) * 20 * 30);
    EXPECT_GT(inner.seconds(model::Part::kProjections), 0.0);
    EXPECT_EQ(inner.seconds(model::Part::kAttend), 0.0);
  }
  EXPECT_EQ(outer.weight_bytes(), 20 * 30 * 2);
  outer.reset();
  EXPECT_EQ(outer.weight_bytes() + outer.multiply_adds(), 0);
  EXPECT_EQ(outer.seconds(model::Part::kProjections), 0.0);
}

}  // namespace
}  // namespace kv
