// The columns that say what a cell's variant is made of, and the cells that have none.
#include "harness/measure/stage_columns.h"

#include <gtest/gtest.h>

#include "harness/results/cell_columns.h"

namespace kv {
namespace {

const CacheShape kSixLayers{.layers = 6, .q_heads = 2, .kv_heads = 1, .head_dim = 32, .max_tokens = 64};

// The columns as cells.csv has them.
std::string columns_of(const results::Row& row) {
  std::string text = "|";
  for (const results::AnyColumn* column : results::kCellColumns)
    if (column->is_stage) text += row.text(*column) + "|";
  return text;
}

TEST(StageColumns, AreTheStagesOfTheVariant) {
  const ModelShape shape(kSixLayers, {});
  results::Row row;
  measure::set_stages(row, parse_layer_specs("contiguous/f16/quest(top=0.01,least=16) + 0-1:contiguous/f16"),
                      &shape);
  EXPECT_EQ(columns_of(row),
            "|f16 quest top 0.01 least 16 + 0-1: "
            "all|contiguous|f16|full|quest(top=0.01,least=16)|0-1:contiguous/f16|||16|");
  measure::set_stages(row, parse_layer_specs("paged(block=8)"), nullptr);
  EXPECT_EQ(columns_of(row), "|paged block 8 f32|paged(block=8)|f32|full|all||||16|")
      << "without a shape the bits stay as they are";
}

TEST(StageColumns, AnotherEngineHasACodecAlone) {
  const ModelShape shape(kSixLayers, {});
  results::Row row;
  EXPECT_EQ(columns_of(row), "||||||||||");
  measure::set_peer_codec(row, parse_layer_specs("contiguous/q8_0"), &shape);
  EXPECT_EQ(columns_of(row), "|||q8_0||||||8.5|");
}

}  // namespace
}  // namespace kv
