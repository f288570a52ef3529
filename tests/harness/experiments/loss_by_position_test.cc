#include "harness/experiments/loss_by_position.h"

#include <gtest/gtest.h>

#include <vector>

#include "harness/measure/prediction_columns.h"
#include "harness/results/cell_columns.h"

namespace kv {
namespace {

struct PositionRun {
  std::vector<results::Row> cells, positions;

  // A cell whose loss is `start` at positions 256 to 511, and `each` more in each of the buckets behind, all within `half`.
  void add(const char* experiment, const char* variant, int64_t length, double start, double each,
           double half) {
    results::Row& cell = cells.emplace_back();
    cell[results::kExperiment] = experiment;
    cell[results::kVariant] = variant;
    cell[results::kSeqLen] = length;
    cell[results::kCell] = experiment + std::string(variant) + std::to_string(length);
    for (int64_t first = 256; first < length; first *= 2, start += each) {
      results::Row& row = positions.emplace_back();
      row[results::kCell] = cell[results::kCell];
      row[results::kVariant] = variant;
      row[measure::kPositionFirst] = first;
      row[measure::kPositionLast] = 2 * first - 1;
      row[measure::kLossChange] = start;
      row[measure::kLossChange.low] = start - half;
      row[measure::kLossChange.high] = start + half;
    }
  }
  std::string told() const { return experiments::loss_by_position(cells, positions); }
};

TEST(LossByPosition, NamesWhatGrowsFallsAndNeither) {
  PositionRun run;
  run.add("quality", "contiguous", 4096, 0, 0, 0);
  run.add("quality", "contiguous/q4_0", 4096, 0.1, 0.001, 0.01);
  run.add("quality", "contiguous/kivi", 4096, 0.1, 0.04, 0.01);
  run.add("quality", "paged/int8", 4096, 0.3, -0.02, 0.01);
  run.add("quality", "contiguous/q5_0", 2048, 0.1, 0.04, 0.01);  // shorter
  run.add("stream", "contiguous/ring", 8192, 0.1, 0.04, 0.01);   // another kind of reading
  // Four buckets a doubling apart: the slope's interval is 1 / sqrt(5) of a bucket's, and of three together 1.22 times that.
  EXPECT_EQ(
      run.told(),
      "Length: with each doubling of the position, from 256 to 4095, the loss grows for contiguous/kivi "
      "+0.04 nats (0.035 to 0.045): one measured at fewer tokens is too small; it falls for paged/int8 "
      "-0.02 nats (-0.025 to -0.015); it does not surely change for contiguous/q4_0\n");
}

TEST(LossByPosition, TwoBucketsAreNoSlope) {
  PositionRun run;
  run.add("quality", "contiguous/kivi", 1024, 0.1, 0.04, 0.01);
  EXPECT_EQ(run.told(), "");
  EXPECT_EQ(experiments::loss_by_position(run.cells, {}), "");
}

}  // namespace
}  // namespace kv
