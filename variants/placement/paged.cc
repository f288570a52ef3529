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
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "variants/list.h"
#include "variants/placement/block_pool.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

constexpr int32_t kNone = -1;

struct PoolShape {
  int64_t block_units;   // one head's
  int64_t table_blocks;  // entries of a table
  int64_t pool_blocks;

  PoolShape(const Stage& stage, const PlacementContext& context)
      : block_units(stage.integer("block") / context.unit.rows),
        table_blocks((context.max_units + block_units - 1) / block_units),
        pool_blocks(stage.integer("pool")) {
    if (pool_blocks > 0) return;
    for (int layer = 0; layer < context.layers; ++layer) pool_blocks += blocks_of(context.most_units(layer));
    pool_blocks *= context.max_sequences;
  }
  int64_t blocks_of(int64_t units) const { return (units + block_units - 1) / block_units; }
};

BlockPool::Shape pool_shape(const Stage& stage, const PlacementContext& context) {
  const PoolShape shape(stage, context);
  BlockPool::Shape pool{.blocks = shape.pool_blocks,
                        .segment = stage.integer("segment"),
                        .block_bytes = {},
                        .shuffled = stage.text("order") == "shuffled"};
  for (int p = 0; p < kPlanes; ++p)
    pool.block_bytes[p] = context.unit.bytes[p] * shape.block_units * context.heads;
  return pool;
}

// A block of every layer, with one owner more. `all`: those that live, where blocks can move; else null.
struct HeldBlocks {
  HeldBlocks(BlockPool& of, std::unordered_set<HeldBlocks*>* all_, std::vector<int32_t> numbers)
      : pool(of), all(all_), block(std::move(numbers)) {
    if (all) all->insert(this);
    for (const int32_t number : block) pool.add_owner(number);
  }
  HeldBlocks(const HeldBlocks&) = delete;
  HeldBlocks& operator=(const HeldBlocks&) = delete;
  ~HeldBlocks() {
    if (all) all->erase(this);
    for (const int32_t number : block) pool.drop_owner(number);
  }
  BlockPool& pool;
  std::unordered_set<HeldBlocks*>* all;
  std::vector<int32_t> block;  // [layers]
};

struct BlockTable {
  Numbers block;  // [table_blocks], kNone behind the last
  int64_t moves = 0;

  int64_t blocks() const {
    const int32_t* const begin = block.data();
    return std::partition_point(begin, begin + block.size(), [](int32_t b) { return b != kNone; }) - begin;
  }
};

class Paged : public Placement, private BlockSharing {
 public:
  Paged(const Stage& stage, const PlacementContext& context)
      : context_(context),
        shape_(stage, context),
        row_major_(axis_order(stage) == AxisOrder::kRowMajor),
        pool_(*context.memory, pool_shape(stage, context)) {
    for (int p = 0; p < kPlanes; ++p) {
      tile_[p] = context.unit.bytes[p] * shape_.block_units;
      unit_stride_[p] = context.unit.bytes[p] * (row_major_ ? context.heads : 1);
    }
  }

  void open(int sequence) override {
    std::vector<BlockTable> tables;
    for (int layer = 0; layer < context_.layers; ++layer) {
      tables.push_back({Numbers(*context_.memory, shape_.blocks_of(context_.most_units(layer)), kNone)});
    }
    if (static_cast<size_t>(sequence) >= tables_.size()) tables_.resize(static_cast<size_t>(sequence) + 1);
    tables_[sequence] = std::move(tables);
  }

  void close(int sequence) override {
    for (const BlockTable& t : tables_[sequence]) {
      // Last first, so that a sequential pool hands them out again in their order.
      for (int64_t i = t.blocks() - 1; i >= 0; --i) pool_.drop_owner(t.block[i]);
    }
    tables_[sequence].clear();
  }

  void fork(int from, int to, const std::vector<int64_t>&) override {
    for (int layer = 0; layer < context_.layers; ++layer) {
      const Numbers &parent = table(from, layer).block, &child = table(to, layer).block;
      for (int64_t i = 0; i < parent.size(); ++i) {
        child[i] = parent[i];
        if (parent[i] != kNone) pool_.add_owner(parent[i]);
      }
    }
  }

  // First finds every table entry that needs a block of its own, giving up its share of a block that others
  // hold too; only if the pool has enough are blocks taken.
  void reserve(int layer, std::span<const Growth> growths) override {
    needed_.clear();
    for (const Growth& g : growths) {
      const int64_t end = blocks_of(g.units);
      needed_.reserve(needed_.size() + static_cast<size_t>(end - g.first / shape_.block_units));
      for (int64_t i = g.first / shape_.block_units; i < end; ++i) {
        const int32_t block = table(g.sequence, layer).block[i];
        if (block != kNone && !pool_.shared(block)) continue;
        if (block != kNone) pool_.drop_owner(block);
        needed_.push_back({&table(g.sequence, layer), i});
      }
    }
    try {
      if (std::ssize(needed_) > pool_.free())
        throw OutOfBlocks(pool_.blocks(), pool_.blocks() - pool_.free(), std::ssize(needed_));
      pool_.make_room(std::ssize(needed_));
    } catch (const std::bad_alloc&) {
      for (const Need& n : needed_) {
        const int32_t block = n.table->block[n.entry];
        if (block != kNone) pool_.add_owner(block);
      }
      throw;
    }
    for (const Need& n : needed_) give_block(n);
  }

  void trim(int sequence, int layer, int64_t, int64_t units) override {
    BlockTable& t = table(sequence, layer);
    for (int64_t i = blocks_of(units); i < t.block.size() && t.block[i] != kNone; ++i) {
      pool_.drop_owner(std::exchange(t.block[i], kNone));
      ++t.moves;
    }
  }

  BlockSharing* sharing() override { return this; }
  int64_t blocks_in_use() const override { return pool_.blocks() - pool_.free(); }

  int64_t run_units() const override { return shape_.block_units; }
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override {
    UnitAddress address;
    const int32_t block = table(sequence, layer).block[unit / shape_.block_units];
    for (int p = 0; p < kPlanes; ++p) {
      if (tile_[p] == 0) continue;
      address.plane[p] = head_rows(p, block, head) + unit % shape_.block_units * unit_stride_[p];
    }
    return address;
  }

  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override {
    const BlockTable& t = table(sequence, layer);
    const int64_t block_rows = shape_.block_units * context_.unit.rows;
    out.reserve(out.size() + static_cast<size_t>((rows - from + block_rows - 1) / block_rows));
    for (int64_t row = from; row < rows; row += block_rows) {
      std::array<const std::byte*, kPlanes> base{};
      for (int p = 0; p < kPlanes; ++p)
        base[p] = tile_[p] > 0 ? head_rows(p, t.block[row / block_rows], head) : nullptr;
      add_spans(context_.unit, base, unit_stride_, std::min(block_rows, rows - row), out);
    }
  }

  int64_t moves(int sequence, int layer) const override { return tables_[sequence][layer].moves; }

  int64_t compact() override {
    const std::vector<std::pair<int32_t, int32_t>> moved = pool_.compact();
    if (moved.empty()) return 0;
    const std::unordered_map<int32_t, int32_t> to(moved.begin(), moved.end());
    const auto follow = [&](int32_t& block) {
      const auto at = to.find(block);
      if (at != to.end()) block = at->second;
      return at != to.end();
    };
    for (std::vector<BlockTable>& layers : tables_) {
      for (BlockTable& t : layers)
        for (int64_t i = 0, blocks = t.blocks(); i < blocks; ++i) t.moves += follow(t.block[i]);
    }
    for (HeldBlocks* held : held_)
      for (int32_t& block : held->block) follow(block);
    int64_t block_bytes = 0;
    for (const int64_t tile : tile_) block_bytes += tile * context_.heads;
    return std::ssize(moved) * block_bytes;
  }

 private:
  int64_t block_units() const override { return shape_.block_units; }
  SharedBlock hold(int sequence, int64_t block) override {
    std::vector<int32_t> numbers;
    for (int layer = 0; layer < context_.layers; ++layer)
      numbers.push_back(table(sequence, layer).block[block]);
    return std::make_shared<HeldBlocks>(pool_, pool_.moves_blocks() ? &held_ : nullptr, std::move(numbers));
  }
  void adopt(int sequence, std::span<const SharedBlock> blocks) override {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& held = *static_cast<const HeldBlocks*>(blocks[i].get());
      for (int layer = 0; layer < context_.layers; ++layer) {
        const int32_t number = held.block[static_cast<size_t>(layer)];
        table(sequence, layer).block[static_cast<int64_t>(i)] = number;
        pool_.add_owner(number);
      }
    }
  }

  // A table entry that is to get a block of its own.
  struct Need {
    BlockTable* table;
    int64_t entry;
  };

  int64_t blocks_of(int64_t units) const { return shape_.blocks_of(units); }
  BlockTable& table(int sequence, int layer) { return tables_[sequence][layer]; }
  // The first byte of a head's rows in the block.
  std::byte* head_rows(int plane, int32_t number, int head) const {
    return pool_.data(plane, number) + head * (row_major_ ? context_.unit.bytes[plane] : tile_[plane]);
  }

  void give_block(const Need& n) {
    int32_t& entry = n.table->block[n.entry];
    const int32_t fresh = pool_.take();
    if (entry != kNone) {
      for (int p = 0; p < kPlanes; ++p) {
        if (tile_[p] == 0) continue;
        context_.memory->copy(pool_.data(p, fresh), pool_.data(p, entry),
                              static_cast<size_t>(tile_[p] * context_.heads));
      }
      ++n.table->moves;
    }
    entry = fresh;
  }

  const PlacementContext context_;
  const PoolShape shape_;
  const bool row_major_;
  BlockPool pool_;  // a block is [heads, tile] of each plane
  std::unordered_set<HeldBlocks*> held_;
  std::array<int64_t, kPlanes> tile_{};          // bytes of one (block, head)
  std::array<int64_t, kPlanes> unit_stride_{};   // bytes from one of a head's units to the next in its block
  std::vector<std::vector<BlockTable>> tables_;  // [sequence][layer]
  std::vector<Need> needed_;                     // the append in progress
};

int64_t paged_shared_bytes(const Stage& stage, const PlacementContext& context,
                           std::span<const int64_t> used) {
  const PoolShape shape(stage, context);
  int64_t taken = 0;
  for (const int64_t units : used) taken += context.whole_layers() * shape.blocks_of(units);
  return BlockPool::bytes(pool_shape(stage, context), taken);
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
    {.make = make_placement<Paged>,
     .layer_bytes =
         [](const Stage& stage, const PlacementContext& context, int64_t) {
           return PoolShape(stage, context).table_blocks * static_cast<int64_t>(sizeof(int32_t));
         },
     .shared_bytes = paged_shared_bytes,
     .refuses =
         [](const Stage& stage, const Codec& codec, const RetentionEntry&) {
           return group_straddles("a block", stage.integer("block"), codec.unit_rows());
         },
     .pool =
         [](const Stage& stage) {
           return PoolSettings{.block_rows = stage.integer("block"),
                               .blocks = stage.integer("pool"),
                               .segment_blocks = stage.integer("segment")};
         },
     .set_pool_blocks = [](Stage& stage, int64_t blocks) { stage.values["pool"] = std::to_string(blocks); },
     .shares_blocks = true,
     .grain_rows = [](const Stage& stage) { return stage.integer("block"); }}};

}  // namespace kv::placement
