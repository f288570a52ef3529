// paged: one pool of equal blocks for all sequences, layers and heads; a block table says which blocks hold a
// sequence's rows (vLLM's PagedAttention, Kwon et al. 2023, arXiv:2309.06180).
//
// A block is `block` rows of one layer, all heads, laid out [head][row][head_dim], so that one (block, head)
// tile is contiguous, as GPU kernels want it; or [row][head][head_dim] with `layout=bshd`. The whole pool is reserved up
// front and is payload, or with `segment=N` comes N blocks at a time, and goes when all of these are free; what the
// blocks in use do not fill, and the free ones, are slack. Metadata are the tables (4 bytes a block of the
// longest sequence, for each layer of each open sequence), the free list and the reference counts (8 bytes a
// block of the pool).
//
// Forks share blocks, so a prefix that several sequences have in common is stored once. A shared block is
// copied when one of its owners writes to it.
#include "variants/list.h"
#include "variants/placement/segment_pool.h"

namespace kv::placement {
namespace {

int64_t block_rows(const Stage& stage) { return stage.integer("block"); }

PoolSettings pool_of(const Stage& stage) {
  return {.block_rows = block_rows(stage),
          .blocks = stage.integer("pool"),
          .segment_blocks = stage.integer("segment"),
          .shuffled = stage.text("order") == "shuffled"};
}

int64_t blocks_of(const Stage& stage, const PlacementContext& context, int64_t units) {
  const int64_t block_units = block_rows(stage) / context.unit.rows;
  return (units + block_units - 1) / block_units;
}

int64_t pool_bytes(const Stage& stage, const PlacementContext& context, std::span<const int64_t> used) {
  int64_t taken = 0;
  for (const int64_t units : used) taken += context.whole_layers() * blocks_of(stage, context, units);
  return SegmentPool::bytes(SegmentPool::shape_of(pool_of(stage), context), context, taken);
}

}  // namespace

const PlacementEntry paged{
    {.name = "paged",
     .help = "one pool of blocks, a block table a sequence; forks share blocks",
     .source = "vLLM (arXiv:2309.06180)",
     .parameters = {Parameter::integer("block", "16", 1, 1024, {1, 64}, "rows of a block"),
                    Parameter::choice("order", {"sequential", "shuffled"},
                                      "order in which free blocks are used"),
                    Parameter::integer("pool", "0", 0, 1 << 30, {},
                                       "blocks of the pool; 0: enough for every sequence at its longest")
                        .of_capacity(),
                    Parameter::integer("segment", "0", 0, 1 << 30, {3},
                                       "blocks by which the pool's memory grows and shrinks; 0: all at once"),
                    layout_parameter()}},
    {.segment_rows = block_rows,
     .layer_bytes =
         [](const Stage& stage, const PlacementContext& context, int64_t) {
           return blocks_of(stage, context, context.max_units) * static_cast<int64_t>(sizeof(int32_t));
         },
     .shared_bytes = pool_bytes,
     .refuses =
         [](const Stage& stage, const Codec& codec, const RetentionEntry&) {
           return group_straddles("a block", block_rows(stage), codec.unit_rows());
         },
     .pool = pool_of,
     .set_pool_blocks = [](Stage& stage, int64_t blocks) { stage.values["pool"] = std::to_string(blocks); }}};

}  // namespace kv::placement
