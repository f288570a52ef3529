// Blocks that several sequences of a RowAllocator share.
#include <algorithm>
#include <utility>

#include "harness/planner/row_groups.h"

namespace kv::planner {

std::string RowAllocator::refuses_sharing(int64_t unit_tokens) const {
  if (unit_tokens < 1) return "a unit has at least 1 token";
  for (const auto& g : groups_) {
    if (!g->pooled() || !g->placement->sharing()) return "only blocks of paged placements are shared";
    if (g->buffered) return "the codec keeps the newest rows of a sequence apart";
    if (g->slots(g->shape.max_tokens) != g->shape.max_tokens) return "the retention drops rows";
    if (unit_tokens % (g->block_units * g->context.unit.rows) != 0)
      return "blocks of " + std::to_string(g->block_units * g->context.unit.rows) + " rows do not divide " +
             std::to_string(unit_tokens);
  }
  return state_bytes_ > 0 ? "states of a sequence belong to it alone" : "";
}

SharedBlock RowAllocator::hold(int sequence, int64_t unit) {
  std::vector<std::vector<SharedBlock>> blocks;
  for (const auto& g : groups_) {
    const int64_t count = g->blocks_of(unit_tokens_);
    std::vector<SharedBlock>& own = blocks.emplace_back();
    for (int64_t i = 0; i < count; ++i)
      own.push_back(g->placement->sharing()->hold(sequence, unit * count + i));
    // grow() has not said that the last block is full, where it had room; nobody writes to it any more.
    int64_t& units = g->units[static_cast<size_t>(sequence)];
    units = std::max(units, (unit + 1) * count * g->block_units);
  }
  auto held = std::make_shared<HeldUnit>(*this, std::move(blocks));
  held->add_user();
  held_[static_cast<size_t>(sequence)].push_back(held);
  return held;
}

int64_t RowAllocator::missing_units(int sequence, int64_t tokens) const {
  const auto at = static_cast<size_t>(sequence);
  if (tokens <= covered_until_[at]) return 0;
  int64_t missing = 0;
  for (const auto& g : groups_) {
    const int64_t blocks = g->blocks_of(tokens) - ceil_div(g->units[at], g->block_units),
                  free = g->pool_blocks - g->used_blocks;
    if (blocks > free) missing = std::max(missing, ceil_div(blocks - free, g->blocks_of(unit_tokens_)));
  }
  return missing;
}

bool RowAllocator::open_with(int sequence, std::span<const SharedBlock> prefix) {
  if (!open(sequence)) return false;
  const auto at = static_cast<size_t>(sequence);
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& g = *groups_[i];
    std::vector<SharedBlock> blocks;
    for (const SharedBlock& one : prefix) {
      const auto& own = static_cast<const HeldUnit*>(one.get())->blocks[i];
      blocks.insert(blocks.end(), own.begin(), own.end());
    }
    g.placement->sharing()->adopt(sequence, blocks);
    g.units[at] = std::ssize(blocks) * g.block_units;
  }
  for (const SharedBlock& one : prefix) {
    auto held = std::static_pointer_cast<HeldUnit>(std::const_pointer_cast<void>(one));
    held->add_user();
    held_[at].push_back(std::move(held));
  }
  covered_until_[at] = std::ssize(prefix) * unit_tokens_;
  return true;
}

double RowAllocator::counted_again_bytes() const {
  return static_cast<double>(uses_ - units_used_) * payload_bytes(unit_tokens_);
}

double RowAllocator::unused_bytes() const {
  return static_cast<double>(units_unused_) * payload_bytes(unit_tokens_);
}

}  // namespace kv::planner
