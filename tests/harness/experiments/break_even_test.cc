#include "harness/experiments/break_even.h"

#include <gtest/gtest.h>

#include <vector>

#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv {
namespace {

// A cell at each length whose step takes `intercept` and `slope` for each token, and `square` for each token squared.
void add_cache(std::vector<results::Row>& rows, const std::string& variant, double intercept, double slope,
               double square, int64_t longest) {
  for (int64_t tokens = 256; tokens <= longest; tokens *= 2) {
    results::Row& row = rows.emplace_back();
    const auto n = static_cast<double>(tokens);
    row[results::kVariant] = variant;
    row[results::kExperiment] = "decode";
    row[results::kWorkload] = "gaussian";
    row[results::kBatch] = 1;
    row[results::kQHeads] = 32;
    row[results::kKvHeads] = 8;
    row[results::kHeadDim] = 128;
    row[results::kThreads] = 2;
    row[results::kSeqLen] = tokens;
    row[measure::kStepP50Us] = intercept + slope * n + square * n * n;
  }
}

std::string told(const std::vector<results::Row>& rows) {
  std::vector<const results::Row*> cells;
  for (const results::Row& row : rows) cells.push_back(&row);
  return experiments::break_even(cells);
}

TEST(BreakEven, NamesTheFasterCacheTheLengthAndTheCosts) {
  std::vector<results::Row> rows;
  add_cache(rows, "contiguous/f16", 10, 0.02, 0, 16384);
  add_cache(rows, "paged/q4_0", 80, 0.01, 0, 16384);
  add_cache(rows, "concat", 10, 0.01, 1e-4, 16384);  // no line
  EXPECT_EQ(told(rows),
            "Break-even (gaussian, batch 1, 32/8 heads of 128, 2 threads): paged/q4_0 is faster than "
            "contiguous/f16 from "
            "about 7000 tokens on (7000–7000). Its steps take 80 us and 10 (10–10) for each 1,000 tokens, "
            "the other's 10 us "
            "and 20 (20–20) for each 1,000 tokens; lengths left out are predicted within 0 %.\n");
}

TEST(BreakEven, NothingIsSaidOfLengthsThatNobodyMeasured) {
  std::vector<results::Row> rows;
  add_cache(rows, "contiguous/f16", 10, 0.02, 0, 4096);
  add_cache(rows, "paged/q4_0", 80, 0.01, 0, 4096);
  EXPECT_EQ(told(rows), "");
}

TEST(BreakEven, CachesOfOtherSweepsAreNotPaired) {
  std::vector<results::Row> rows;
  add_cache(rows, "contiguous/f16", 10, 0.02, 0, 16384);
  const size_t own = rows.size();
  add_cache(rows, "paged/q4_0", 80, 0.01, 0, 16384);
  for (size_t i = own; i < rows.size(); ++i) rows[i][results::kBatch] = 8;
  EXPECT_EQ(told(rows), "");
}

}  // namespace
}  // namespace kv
