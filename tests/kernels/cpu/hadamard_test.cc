// The Hadamard transform against its definition, and what it is for.
#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "harness/verify/reference/hadamard.h"
#include "harness/verify/rows.h"
#include "tests/normal.h"

namespace kv::hadamard_test {
namespace {

std::vector<float> normal_rows(int64_t rows, int head_dim) {
  return test::gaussian(rows * head_dim, static_cast<uint64_t>(head_dim));
}

std::vector<float> transformed(const std::vector<float>& rows, int head_dim) {
  std::vector<float> to(rows.size());
  hadamard_rows(rows.data(), std::ssize(rows) / head_dim, head_dim, to.data());
  return to;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double off = 0, all = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    off += std::pow(double{got[i]} - want[i], 2);
    all += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(off / all);
}

TEST(Hadamard, IsTheMatrixOfItsDefinition) {
  for (const int d : {8, 16, 32, 64, 80, 96, 128, 192, 256, 512}) {
    const std::vector<float> rows = normal_rows(7, d);
    std::vector<float> want = rows;
    reference::hadamard(want, d);
    const std::vector<float> got = transformed(rows, d);
    EXPECT_LT(relative_error(got, want), 3e-7) << d;
    EXPECT_GT(relative_error(got, rows), 1.0) << d << ": it moves rows";
    EXPECT_LT(relative_error(transformed(got, d), rows), 3e-7) << d << ": it is its own inverse";
  }
}

// By hand, so that the definition is not taken from one place alone.
TEST(Hadamard, OfFourChannelsOfABlockOfEight) {
  std::vector<float> row{1, 2, 0, 0, 0, 0, 0, 0};
  const float unit = 1.0f / std::sqrt(8.0f);
  const std::vector<float> got = transformed(row, 8);
  for (size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(got[i], unit * (i % 2 == 0 ? 3.0f : -1.0f)) << i;
}

TEST(Hadamard, HasTheSameBitsForOneRowAndForMany) {
  const int d = 128;
  const std::vector<float> rows = normal_rows(2000, d), all = transformed(rows, d);
  for (size_t row = 0; row < 2000; row += 37) {
    const auto at = static_cast<int64_t>(row) * d;
    std::vector<float> one(rows.begin() + at, rows.begin() + at + d);
    hadamard_rows(one.data(), 1, d, one.data());
    EXPECT_EQ(one, std::vector<float>(all.begin() + at, all.begin() + at + d)) << row;
  }
}

// One channel of 128 a hundred times as large as the others sets the step of four bits for all; spread, it is a ninth of
// itself in each.
TEST(Hadamard, MakesTheStepsOfCodesSmallerWhereAChannelIsLarge) {
  const int d = 128;
  std::vector<float> rows = normal_rows(64, d);
  for (size_t row = 0; row < 64; ++row) rows[row * d + 5] = 100.0f;
  const Encoding codes{.format = Format::kToken, .bits = 4, .affine = true};
  const auto error_of_others = [&](const std::vector<float>& stored) {
    std::vector<float> got, want;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % d == 5) continue;
      got.push_back(stored[i]);
      want.push_back(rows[i]);
    }
    return relative_error(got, want);
  };
  std::vector<float> spread = verify::through_codec(codes, d, transformed(rows, d));
  reference::hadamard(spread, d);
  const double plain = error_of_others(verify::through_codec(codes, d, rows)),
               rotated = error_of_others(spread);
  EXPECT_GT(plain, 0.9) << "nearly all others fall on one code";
  EXPECT_LT(rotated, 0.6);
  EXPECT_GT(rotated, 0.2);
}

}  // namespace
}  // namespace kv::hadamard_test
