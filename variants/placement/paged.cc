// paged: one pool of equal blocks for all sequences, layers and heads; a block table says which blocks hold a
// sequence's rows (vLLM's PagedAttention, Kwon et al. 2023, arXiv:2309.06180).
//
// A block is `block` rows of one layer, all heads, laid out [head][row][head_dim], so that one (block, head)
// tile is contiguous, as GPU kernels want it; or [row][head][head_dim] with `layout=bshd`. The whole pool is reserved up front and is payload; what the
// blocks in use do not fill, and the free ones, are slack. Metadata are the tables (4 bytes a block of the
// longest sequence, for each layer of each open sequence), the free list and the reference counts (8 bytes a
// block of the pool).
//
// Forks share blocks, so a prefix that several sequences have in common is stored once. A shared block is
// copied when one of its owners writes to it.
#include <algorithm>
#include <random>
#include <utility>

#include "variants/list.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

constexpr int32_t kNone = -1;

struct PoolShape {
  int64_t block_units;   // of one head
  int64_t table_blocks;  // entries of a table
  int64_t pool_blocks;

  PoolShape(const Stage& stage, const PlacementContext& context)
      : block_units(stage.integer("block") / context.unit.rows),
        table_blocks((context.max_units + block_units - 1) / block_units),
        pool_blocks(stage.integer("pool")) {
    if (pool_blocks == 0) pool_blocks = table_blocks * context.layers * context.max_sequences;
  }
};

int64_t shared_bytes(const Stage& stage, const PlacementContext& context) {
  const PoolShape shape(stage, context);
  const auto entry = static_cast<int64_t>(sizeof(int32_t));
  return planes_bytes(context, shape.pool_blocks * shape.block_units) + 2 * entry * shape.pool_blocks;
}

int64_t layer_bytes(const Stage& stage, const PlacementContext& context, int64_t) {
  return PoolShape(stage, context).table_blocks * static_cast<int64_t>(sizeof(int32_t));
}

// Counted int32 numbers.
class Numbers {
 public:
  Numbers() = default;
  Numbers(Memory& memory, int64_t count, int32_t value)
      : block_(memory, static_cast<size_t>(count) * sizeof(int32_t), ByteKind::kMetadata), count_(count) {
    std::fill_n(data(), count, value);
  }
  int32_t* data() const { return reinterpret_cast<int32_t*>(block_.data()); }
  int64_t size() const { return count_; }
  int32_t& operator[](int64_t i) const { return data()[i]; }

 private:
  Block block_;
  int64_t count_ = 0;
};

// Hands out the numbers of free blocks and counts who holds each.
class BlockPool {
 public:
  BlockPool(Memory& memory, int64_t blocks, bool shuffled)
      : owners_(memory, blocks, 0), free_(memory, blocks, 0), free_count_(blocks) {
    // A stack, lowest number on top.
    for (int64_t i = 0; i < blocks; ++i) free_[i] = static_cast<int32_t>(blocks - 1 - i);
    std::mt19937_64 random(0);
    for (int64_t i = blocks - 1; shuffled && i > 0; --i) {
      std::swap(free_[i], free_[static_cast<int64_t>(random() % static_cast<uint64_t>(i + 1))]);
    }
  }

  int64_t blocks() const { return owners_.size(); }
  int64_t free() const { return free_count_; }
  bool shared(int32_t block) const { return owners_[block] > 1; }
  int32_t take() {
    const int32_t block = free_[--free_count_];
    owners_[block] = 1;
    return block;
  }
  void add_owner(int32_t block) { ++owners_[block]; }
  void drop_owner(int32_t block) {
    if (--owners_[block] == 0) free_[free_count_++] = block;
  }

 private:
  Numbers owners_, free_;
  int64_t free_count_;
};

// A block of every layer, with one owner more.
struct HeldBlocks {
  HeldBlocks(BlockPool& of, std::vector<int32_t> numbers) : pool(of), block(std::move(numbers)) {
    for (const int32_t number : block) pool.add_owner(number);
  }
  HeldBlocks(const HeldBlocks&) = delete;
  HeldBlocks& operator=(const HeldBlocks&) = delete;
  ~HeldBlocks() {
    for (const int32_t number : block) pool.drop_owner(number);
  }
  BlockPool& pool;
  const std::vector<int32_t> block;  // [layers]
};

struct BlockTable {
  Numbers block;  // [table_blocks], kNone where there is none
  int64_t moves = 0;
};

class Paged : public Placement {
 public:
  Paged(const Stage& stage, const PlacementContext& context)
      : context_(context),
        shape_(stage, context),
        row_major_(axis_order(stage) == AxisOrder::kRowMajor),
        pool_(*context.memory, shape_.pool_blocks, stage.text("order") == "shuffled") {
    for (int p = 0; p < kPlanes; ++p) {
      tile_[p] = context.unit.bytes[p] * shape_.block_units;
      unit_stride_[p] = context.unit.bytes[p] * (row_major_ ? context.heads : 1);
      const bool meta = p == kKMeta || p == kVMeta;
      plane_[p] =
          Block::of_rows(*context.memory, static_cast<size_t>(tile_[p] * context.heads * shape_.pool_blocks),
                         meta ? ByteKind::kMetadata : ByteKind::kPayload);
    }
  }

  void open(int sequence) override {
    std::vector<BlockTable> tables;
    for (int layer = 0; layer < context_.layers; ++layer) {
      tables.push_back({Numbers(*context_.memory, shape_.table_blocks, kNone)});
    }
    if (static_cast<size_t>(sequence) >= tables_.size()) tables_.resize(static_cast<size_t>(sequence) + 1);
    tables_[sequence] = std::move(tables);
  }

  void close(int sequence) override {
    for (const BlockTable& t : tables_[sequence]) {
      // Last first, so that a sequential pool hands them out again in their order.
      for (int64_t i = t.block.size() - 1; i >= 0; --i) {
        if (t.block[i] != kNone) pool_.drop_owner(t.block[i]);
      }
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
    if (std::ssize(needed_) > pool_.free()) refuse();
    for (const Need& n : needed_) give_block(n);
  }

  void trim(int sequence, int layer, int64_t, int64_t units) override {
    BlockTable& t = table(sequence, layer);
    for (int64_t i = blocks_of(units); i < t.block.size() && t.block[i] != kNone; ++i) {
      pool_.drop_owner(std::exchange(t.block[i], kNone));
      ++t.moves;
    }
  }

  int64_t block_units() const override { return shape_.block_units; }
  SharedBlock hold(int sequence, int64_t block) override {
    std::vector<int32_t> numbers;
    for (int layer = 0; layer < context_.layers; ++layer)
      numbers.push_back(table(sequence, layer).block[block]);
    return std::make_shared<const HeldBlocks>(pool_, std::move(numbers));
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

  int64_t run_units() const override { return shape_.block_units; }
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override {
    UnitAddress address;
    const int32_t block = table(sequence, layer).block[unit / shape_.block_units];
    for (int p = 0; p < kPlanes; ++p) {
      if (!plane_[p]) continue;
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
        base[p] = plane_[p] ? head_rows(p, t.block[row / block_rows], head) : nullptr;
      add_spans(context_.unit, base, unit_stride_, std::min(block_rows, rows - row), out);
    }
  }

  int64_t moves(int sequence, int layer) const override { return tables_[sequence][layer].moves; }

 private:
  // A table entry that is to get a block of its own.
  struct Need {
    BlockTable* table;
    int64_t entry;
  };

  int64_t blocks_of(int64_t units) const { return (units + shape_.block_units - 1) / shape_.block_units; }
  BlockTable& table(int sequence, int layer) { return tables_[sequence][layer]; }
  std::byte* block(int plane, int32_t number) const {
    return plane_[plane].data() + int64_t{number} * context_.heads * tile_[plane];
  }
  // Where a head's rows of the block begin.
  std::byte* head_rows(int plane, int32_t number, int head) const {
    return block(plane, number) + head * (row_major_ ? context_.unit.bytes[plane] : tile_[plane]);
  }

  void give_block(const Need& n) {
    int32_t& entry = n.table->block[n.entry];
    const int32_t fresh = pool_.take();
    if (entry != kNone) {
      for (int p = 0; p < kPlanes; ++p) {
        if (!plane_[p]) continue;
        context_.memory->copy(block(p, fresh), block(p, entry),
                              static_cast<size_t>(tile_[p] * context_.heads));
      }
      ++n.table->moves;
    }
    entry = fresh;
  }

  [[noreturn]] void refuse() {
    for (const Need& n : needed_) {
      const int32_t block = n.table->block[n.entry];
      if (block != kNone) pool_.add_owner(block);
    }
    throw OutOfBlocks(pool_.blocks(), pool_.blocks() - pool_.free(), std::ssize(needed_));
  }

  const PlacementContext context_;
  const PoolShape shape_;
  const bool row_major_;
  BlockPool pool_;
  std::array<int64_t, kPlanes> tile_{};          // bytes of one (block, head)
  std::array<int64_t, kPlanes> unit_stride_{};   // bytes from one of a head's units to the next in its block
  std::array<Block, kPlanes> plane_;             // [pool_blocks, heads, tile]
  std::vector<std::vector<BlockTable>> tables_;  // [sequence][layer]
  std::vector<Need> needed_;                     // of the append in progress
};

std::unique_ptr<Placement> make(const Stage& stage, const PlacementContext& context) {
  return std::make_unique<Paged>(stage, context);
}

std::string refuses(const Stage& stage, const Codec& codec, const RetentionEntry&) {
  return group_straddles("a block", stage.integer("block"), codec.unit_rows());
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
                    layout_parameter()}},
    make,
    layer_bytes,
    shared_bytes,
    refuses,
    /*layer_tiers=*/nullptr,
    /*tier_codecs=*/nullptr,
    /*shares_blocks=*/true};

}  // namespace kv::placement
