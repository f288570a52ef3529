// The parts of a RowAllocator: a budget of bytes, a memory that counts them, and a group of layers that keep alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

#include "harness/planner/row_allocator.h"
#include "variants/cache/layout.h"
#include "variants/placement/placement.h"
#include "variants/storage/residual_buffer.h"

namespace kv::planner {

// The bytes that all groups together may hold.
struct RowAllocator::Budget {
  int64_t limit = 0, used = 0;
  int64_t rows = 0;  // the part of `used` for rows
  void take(int64_t bytes) {
    if (bytes > limit - used) throw std::bad_alloc();
    used += bytes;
  }
};

// Counts each byte `times` times: one layer stands for all.
template <class Budget>
class CountingMemory : public Memory {
 public:
  CountingMemory(Budget& budget, int64_t times) : budget_(budget), times_(times) {}
  ~CountingMemory() override {
    for (const auto& [p, held] : held_) free_real(p, held);
  }

  std::byte* allocate(size_t bytes, ByteKind) override {
    count(bytes);
    auto* p = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    held_[p] = {bytes, true};
    return p;
  }
  std::byte* allocate_rows(size_t bytes, ByteKind, Tier) override {
    count(bytes);
    budget_.rows += static_cast<int64_t>(bytes) * times_;
    std::byte* p = next_;
    next_ += (bytes + 63) / 64 * 64;
    held_[p] = {bytes, false};
    return p;
  }
  void release(std::byte* p) noexcept override {
    const auto found = held_.find(p);
    const int64_t bytes = static_cast<int64_t>(found->second.bytes) * times_;
    budget_.used -= bytes;
    if (!found->second.real) budget_.rows -= bytes;
    free_real(p, found->second);
    held_.erase(found);
  }
  void copy(std::byte*, const std::byte*, size_t) override {}  // there are no rows
  void count_disk(int64_t) noexcept override {}
  void count_disk_read(int64_t, double) noexcept override {}
  void count_disk_wait(double) noexcept override {}

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Held {
    size_t bytes;
    bool real;
  };
  void count(size_t bytes) { budget_.take(static_cast<int64_t>(bytes) * times_); }
  static void free_real(std::byte* p, const Held& held) noexcept {
    if (held.real) ::operator delete(p, kAlignment);
  }

  Budget& budget_;
  const int64_t times_;
  // Addresses of rows that nothing reads or writes: no machine has memory there.
  std::byte* next_ = reinterpret_cast<std::byte*>(uintptr_t{1} << 60);
  std::unordered_map<std::byte*, Held> held_;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct RowAllocator::Group {
  Spec spec;
  CacheShape shape;  // one layer's
  int64_t layers;
  Codec codec;
  PlacementContext context;
  std::unique_ptr<CountingMemory<Budget>> memory;
  std::unique_ptr<Placement> placement;
  int64_t block_units = 0;  // 0 without a pool
  int64_t pool_blocks = 0, used_blocks = 0;
  std::vector<int64_t> units;  // by sequence, that have room
  // The fewest blocks that the pool has refused since any came back; asking for as many again would fail again.
  int64_t refused_blocks = std::numeric_limits<int64_t>::max();

  Group(const Spec& spec_, const CacheShape& shape_, int64_t layers_)
      : spec(spec_),
        shape(shape_),
        layers(layers_),
        codec(codec_for(spec, shape)),
        context(placement_context(spec, shape, codec, nullptr)) {
    if (const auto pool = pool_settings(spec)) block_units = pool->block_rows / context.unit.rows;
  }

  bool pooled() const { return block_units > 0; }
  int64_t slots(int64_t tokens) const {
    return retention_of(spec).slots(spec.retention, {shape.max_tokens, tokens, 0, 0, 0, codec.units()});
  }
  int64_t units_of(int64_t tokens) const { return codec.units().encoded(slots(tokens)); }
  int64_t blocks_of(int64_t tokens) const { return ceil_div(units_of(tokens), block_units); }
  // At least one, where a codec still has all rows in its buffer.
  int64_t usual_blocks(int64_t tokens) const { return std::max<int64_t>(1, blocks_of(tokens)); }
  int64_t unit_bytes() const { return context.unit_bytes() * context.heads; }
  int64_t block_bytes() const { return unit_bytes() * block_units; }
  // One layer's pool of so many blocks, metadata included.
  int64_t pool_bytes(int64_t blocks) const {
    return placement_of(spec).shared_bytes(with_pool(spec, blocks).placement, context, {});
  }
  // One layer of a sequence of so many tokens, outside of the pool.
  int64_t own_bytes(int64_t tokens) const {
    return placement_of(spec).layer_bytes(spec.placement, context, units_of(tokens));
  }
  // Codecs' buffers of raw rows, and metadata of retention and selection.
  int64_t state_bytes() const {
    const int64_t buffer = ResidualBuffer::bytes(codec, shape.kv_heads, shape.head_dim, shape.is_latent());
    const int64_t of_head =
        retention_of(spec).metadata_bytes(spec.retention, shape.max_tokens) + selection_bytes(spec, shape);
    return layers * (buffer + of_head * shape.kv_heads);
  }
};

// Blocks of every group with the rows of a unit, owned apart from sequences.
struct RowAllocator::HeldUnit {
  HeldUnit(RowAllocator& of, std::vector<std::vector<SharedBlock>> its) : rows(of), blocks(std::move(its)) {
    ++rows.units_unused_;
  }
  HeldUnit(const HeldUnit&) = delete;
  HeldUnit& operator=(const HeldUnit&) = delete;
  ~HeldUnit() {
    --rows.units_unused_;
    for (size_t i = 0; i < blocks.size(); ++i) {
      rows.groups_[i]->used_blocks -= std::ssize(blocks[i]);
      rows.groups_[i]->refused_blocks = std::numeric_limits<int64_t>::max();
    }
  }
  void add_user() {
    if (users++ > 0) return void(++rows.uses_);
    ++rows.uses_;
    ++rows.units_used_;
    --rows.units_unused_;
  }
  void drop_user() {
    --rows.uses_;
    if (--users > 0) return;
    --rows.units_used_;
    ++rows.units_unused_;
  }
  RowAllocator& rows;
  std::vector<std::vector<SharedBlock>> blocks;  // by group
  int64_t users = 0;                             // sequences
};

}  // namespace kv::planner
