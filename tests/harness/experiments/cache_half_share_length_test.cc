// The context at which the cache takes half of a step.
#include "harness/experiments/model/cache_half_share_length.h"
#include "harness/experiments/model/columns.h"
#include "harness/results/cell_columns.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

results::Row cell(const std::string& variant, int64_t batch, int64_t tokens, double share) {
  results::Row row;
  row[results::kVariant] = variant;
  row[results::kBatch] = batch;
  row[results::kSeqLen] = tokens;
  row[experiments::kCacheShare] = share;
  return row;
}

std::string line_of(const std::vector<results::Row>& rows) {
  experiments::Cells cells;
  for (const results::Row& row : rows) cells.push_back(&row);
  return experiments::cache_half_share_length(cells);
}

TEST(HalfAStep, LiesBetweenTheContextsThatWereMeasured) {
  // Half way in the share is half way in the logarithm.
  EXPECT_EQ(line_of({cell("contiguous", 1, 4000, 0.75), cell("contiguous", 1, 1000, 0.25)}),
            "The cache takes half of a step: contiguous, batch 1 from about 2000 tokens\n");
}

TEST(HalfAStep, SaysWhereItIsBeyondThem) {
  EXPECT_EQ(line_of({cell("a", 1, 1024, 0.6), cell("a", 8, 1024, 0.1), cell("a", 8, 65536, 0.32),
                     cell("b", 8, 64, 0.2)}),
            "The cache takes half of a step: a, batch 1 at 1000 tokens already; not at the contexts "
            "measured: 2 more, "
            "at most 32 % (a, 65536 tokens)\n");
  EXPECT_EQ(
      line_of({cell("a", 1, 1024, 0.2)}),
      "The cache takes half of a step: at no context that was measured, at most 20 % (a, 1024 tokens)\n");
}

TEST(HalfAStep, IsOfModelsAlone) {
  results::Row decode, again = cell("a", 1, 1024, 0.6);
  decode[results::kSeqLen] = 10;
  again[results::kVerdict] = results::kAaVerdict;
  EXPECT_EQ(line_of({decode, again}), "");
}

}  // namespace
}  // namespace kv
