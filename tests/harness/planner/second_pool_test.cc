// A second placement with a pool is sized and counted by what its entry states; nothing asks for its name.
//
// The linker takes from a static library only what a program lacks, so this file's `doubling` stands in the place of the
// product's: blocks of pages, in parameters of other names, with 2,400 bytes more a block than paged has.
#include <gtest/gtest.h>

#include "harness/experiments/batch/padding.h"
#include "harness/planner/row_allocator.h"
#include "variants/list.h"
#include "variants/placement/placement.h"

namespace kv {
namespace {

constexpr int64_t kExtraBytes = 2400;  // a block

Stage as_paged(const Stage& stage) {
  return {"paged",
          {{"block", stage.text("page")},
           {"pool", stage.text("pages")},
           {"segment", "0"},
           {"order", "sequential"},
           {"layout", "bhsd"}}};
}

class SecondPool : public Placement {
 public:
  SecondPool(const Stage& stage, const PlacementContext& context)
      : Placement(placement::paged, as_paged(stage), context),
        extra_(*context.memory, static_cast<size_t>(stage.integer("pages") * kExtraBytes),
               ByteKind::kMetadata) {}

 private:
  Block extra_;
};

}  // namespace

namespace placement {
const PlacementEntry doubling{
    {.name = "doubling",
     .help = "",
     .source = "",
     .parameters = {Parameter::integer("page", "32", 1, 1024, {}, ""),
                    Parameter::integer("pages", "0", 0, 1 << 30, {}, "")}},
    {.segment_rows = [](const Stage& stage) { return stage.integer("page"); },
     .layer_bytes = [](const Stage& stage, const PlacementContext& context,
                       int64_t used) { return paged.layer_bytes(as_paged(stage), context, used); },
     .shared_bytes =
         [](const Stage& stage, const PlacementContext& context, std::span<const int64_t> used) {
           return paged.shared_bytes(as_paged(stage), context, used) + stage.integer("pages") * kExtraBytes;
         },
     .pool =
         [](const Stage& stage) {
           return PoolSettings{.block_rows = stage.integer("page"), .blocks = stage.integer("pages")};
         },
     .set_pool_blocks = [](Stage& stage, int64_t blocks) { stage.values["pages"] = std::to_string(blocks); },
     .make = [](const PlacementTraits&, const Stage& stage, const PlacementContext& context)
         -> std::unique_ptr<Placement> { return std::make_unique<SecondPool>(stage, context); }}};
}  // namespace placement

namespace planner {
namespace {

constexpr int kLayers = 3, kHeads = 2, kHeadDim = 32;
constexpr int64_t kPage = 32, kMostTokens = 4096;
constexpr int64_t kPageBytes = kPage * 2 * 2 * kHeads * kHeadDim;  // f16 rows of K and V
constexpr int64_t kBlockBytes = kPageBytes + 8 + kExtraBytes;
constexpr int64_t kTableBytes = kMostTokens / kPage * 4;

config::Geometry geometry() {
  config::Geometry g;
  g.layers = g.model_layers = kLayers;
  g.q_heads = g.kv_heads = kHeads;
  g.head_dim = kHeadDim;
  g.kinds.resize(kLayers);
  return g;
}

Room room_of(int64_t bytes) {
  return {.bytes = bytes, .max_tokens = kMostTokens, .typical_tokens = 400, .max_sequences = 8};
}

TEST(SecondPool, TakesTheRoomAndCountsItsBlocks) {
  const int64_t bytes = 5'000'000;
  RowAllocator rows(geometry(), parse_layer_specs("doubling/f16"), room_of(bytes));
  const int64_t blocks = rows.pool_blocks() / kLayers;
  EXPECT_GT(blocks, 0);
  EXPECT_EQ(rows.held_bytes(), kLayers * blocks * (kBlockBytes - kPageBytes)) << "an empty pool";
  // Rows of typical sequences and their tables fill the room but for a block of every layer.
  EXPECT_LE(kLayers * (blocks * kBlockBytes + 8 * kTableBytes), bytes);
  EXPECT_GT(kLayers * ((blocks + 1) * kBlockBytes + 8 * kTableBytes), bytes);

  ASSERT_TRUE(rows.open(0));
  int64_t tokens = 0;
  while (rows.grow(0, tokens + 7)) {
    tokens += 7;
    ASSERT_EQ(rows.blocks_in_use(), kLayers * ((tokens + kPage - 1) / kPage)) << tokens;
    ASSERT_EQ(rows.held_bytes(), rows.blocks_in_use() * kPageBytes +
                                     kLayers * (blocks * (kBlockBytes - kPageBytes) + kTableBytes));
    if (tokens + 7 > kMostTokens) break;
  }
  EXPECT_GT(tokens, 0);
  rows.close(0);
  EXPECT_EQ(rows.blocks_in_use(), 0);
}

TEST(SecondPool, RefusesMoreThanItsBlocksHold) {
  const int64_t bytes = kLayers * (10 * kBlockBytes + kTableBytes);
  const Room room{
      .bytes = bytes, .max_tokens = kMostTokens, .typical_tokens = 10 * kPage, .max_sequences = 1};
  RowAllocator rows(geometry(), parse_layer_specs("doubling/f16"), room);
  ASSERT_EQ(rows.pool_blocks(), kLayers * 10);
  EXPECT_TRUE(rows.can_ever_hold(10 * kPage));
  EXPECT_FALSE(rows.can_ever_hold(10 * kPage + 1));
  ASSERT_TRUE(rows.open(0));
  EXPECT_TRUE(rows.grow(0, 10 * kPage));
  EXPECT_FALSE(rows.grow(0, 10 * kPage + 1));
}

TEST(SecondPool, IsSharedInItsOwnBlocks) {
  RowAllocator rows(geometry(), parse_layer_specs("doubling/f16"), room_of(5'000'000));
  EXPECT_EQ(rows.refuses_sharing(2 * kPage), "");
  EXPECT_EQ(rows.refuses_sharing(kPage / 2), "blocks of 32 tokens do not divide 16");
}

TEST(SecondPool, IsRefusedWhereItsSizeIsGiven) {
  EXPECT_EQ(
      RowAllocator::unsupported(geometry(), parse_layer_specs("doubling(pages=9)/f16"), room_of(5'000'000)),
      "the memory decides how large the pool is: leave pool= out");
}

TEST(SecondPool, IsFittedToABatch) {
  const CacheShape shape{.layers = 2, .kv_heads = 1, .max_tokens = 1024, .max_sequences = 3};
  const std::vector<int64_t> lengths{1, 32, 70};
  const Spec fitted = experiments::with_fitting_pool(parse_spec("doubling/f16"), shape, lengths, 2);
  EXPECT_EQ(fitted.print(), "doubling(pages=20)/f16");
}

}  // namespace
}  // namespace planner
}  // namespace kv
