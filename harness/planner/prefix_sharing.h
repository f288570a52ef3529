// Prefixes shared within a replay, by the prefix cache that caches use: a unit is found by its own number and all before it,
// lives as long as a sequence has it or the cache, and goes least recently used from the leaves.
#pragma once

#include <cstdint>
#include <span>

#include "harness/planner/row_allocator.h"
#include "variants/cache/prefix_cache.h"

namespace kv::planner {

class PrefixSharing : private BlockOwner {
 public:
  // Throws std::invalid_argument with the reason where rows cannot be shared so.
  PrefixSharing(RowAllocator& rows, int64_t unit_tokens);
  // Opens a sequence under the caller's number. Returns its tokens found in `units` (BlockTree's numbers), or -1 without room.
  int64_t open(int sequence, std::span<const int32_t> units);
  // The sequence's first tokens are these units, and all their rows are there.
  void share(int sequence, std::span<const int32_t> units) { cache_.share(sequence, units); }
  void close(int sequence) { cache_.release(sequence); }
  // Evicts so many units, or all that no sequence has.
  void evict(int64_t units) { cache_.evict(units); }
  int64_t units() const { return cache_.blocks(); }  // that are held

 private:
  int64_t block_tokens() const override { return 1; }  // a number stands for a whole unit
  int64_t tokens(SequenceId) const override { return INT64_MAX; }
  SharedBlock hold(SequenceId sequence, int64_t unit) override {
    return rows_.hold(static_cast<int>(sequence), unit);
  }
  SequenceId adopt(std::span<const SharedBlock> units) override;
  void release(SequenceId sequence) override { rows_.close(static_cast<int>(sequence)); }

  RowAllocator& rows_;
  const int64_t unit_tokens_;
  int opening_ = 0;
  int64_t adopted_ = 0;
  PrefixCache cache_;
};

}  // namespace kv::planner
