#include "harness/planner/row_allocator.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "harness/planner/row_groups.h"

namespace kv::planner {

RowAllocator::~RowAllocator() = default;

namespace {

std::string refused(const Spec& spec) {
  if (retention_of(spec).cuts_prompt)
    return "'" + spec.retention.name + "' needs the whole prompt, but a replay reads prompts in chunks";
  if (retention_of(spec).ragged)
    return "heads of '" + spec.retention.name + "' keep different numbers of tokens, which is not replayed";
  if (has_tiers(spec)) return "tiers are not replayed";
  const PoolSettings pool = pool_settings(spec).value_or(PoolSettings());
  if (pool.blocks > 0) return "the memory decides how large the pool is: leave pool= out";
  if (pool.segment_blocks > 0) return "a replay's pool has all its blocks from the start: leave segment= out";
  return "";
}

}  // namespace

std::vector<std::unique_ptr<RowAllocator::Group>> RowAllocator::groups(const config::Geometry& geometry,
                                                                       const LayerSpecs& specs,
                                                                       const Room& room) {
  std::vector<std::unique_ptr<Group>> all;
  const ModelShape shape = config::shape_of(geometry, room.max_tokens, room.max_sequences);
  for (const LayerGroup& of : groups_of(specs, shape)) {
    if (of.linear) continue;
    CacheShape one = kv::shape_of(of, shape);
    one.layers = 1;
    all.push_back(std::make_unique<Group>(of.spec, one, std::ssize(of.layers)));
  }
  return all;
}

std::string RowAllocator::unsupported(const config::Geometry& geometry, const LayerSpecs& specs,
                                      const Room& room) {
  const ModelShape shape = config::shape_of(geometry, room.max_tokens, room.max_sequences);
  std::string reason = kv::unsupported_reason(specs, shape);
  if (!reason.empty()) return reason;
  for (const LayerGroup& of : groups_of(specs, shape)) {
    if (!of.linear) reason = refused(of.spec);
    if (!reason.empty()) return reason;
  }
  try {
    RowAllocator trial(geometry, specs, room);
  } catch (const std::bad_alloc&) {
    return "no room for a single sequence";
  }
  return "";
}

RowAllocator::RowAllocator(const config::Geometry& geometry, const LayerSpecs& specs, const Room& room)
    : budget_(std::make_unique<Budget>(Budget{.limit = room.bytes})), groups_(groups(geometry, specs, room)) {
  const ModelShape shape = config::shape_of(geometry, room.max_tokens, room.max_sequences);
  for (const LayerGroup& of : groups_of(specs, shape)) {
    if (!of.linear) {
      if (const std::string reason = refused(of.spec); !reason.empty()) throw std::invalid_argument(reason);
    } else if (geometry.linear.value_heads > 0) {
      state_bytes_ += linear_state_bytes(shape.linear) * std::ssize(of.layers);
    }
  }
  for (const auto& g : groups_) {
    state_bytes_ += g->state_bytes();
    kept_.push_back({g->slots(room.max_tokens), g->layers,
                     static_cast<double>(g->unit_bytes()) / static_cast<double>(g->context.unit.rows)});
  }
  size_pools(room);
  for (const auto& group : groups_) {
    group->memory = std::make_unique<CountingMemory<Budget>>(*budget_, group->layers);
    group->context.memory = group->memory.get();
    group->placement =
        placement_of(group->spec).make(placement_of(group->spec), group->spec.placement, group->context);
  }
}

void RowAllocator::size_pools(const Room& room) {
  // Bytes of a usual sequence inside and outside pools.
  double pooled = 0.0, own = static_cast<double>(state_bytes_);
  for (const auto& g : groups_) {
    own += static_cast<double>(g->layers * g->own_bytes(room.typical_tokens));
    if (g->pooled())
      pooled += static_cast<double>(g->usual_blocks(room.typical_tokens)) *
                static_cast<double>(g->layers * g->pool_bytes(1));
  }
  if (pooled == 0.0) return;
  const auto bytes = static_cast<double>(room.bytes);
  const double sequences = std::clamp(bytes / (own + pooled), 1.0, static_cast<double>(room.max_sequences));
  const double left = bytes - sequences * own;
  for (const auto& g : groups_) {
    if (!g->pooled()) continue;
    const double blocks = left / pooled * static_cast<double>(g->usual_blocks(room.typical_tokens));
    constexpr double kMost = 1 << 30;
    g->pool_blocks = static_cast<int64_t>(std::clamp(blocks, 0.0, kMost));
    if (g->pool_blocks == 0) throw std::bad_alloc();
    g->spec = with_pool(g->spec, g->pool_blocks);
  }
}

bool RowAllocator::open(int sequence) {
  const auto at = static_cast<size_t>(sequence);
  size_t opened = 0;
  bool state = false;
  try {
    budget_->take(state_bytes_);
    state = true;
    for (; opened < groups_.size(); ++opened) {
      Group& g = *groups_[opened];
      if (at >= g.units.size()) g.units.resize(at + 1);
      g.units[at] = 0;
      g.placement->open(sequence);
    }
  } catch (const std::bad_alloc&) {
    if (state) budget_->used -= state_bytes_;
    for (size_t i = 0; i < opened; ++i) groups_[i]->placement->close(sequence);
    return false;
  }
  if (at >= covered_until_.size()) covered_until_.resize(at + 1);
  if (at >= held_.size()) held_.resize(at + 1);
  covered_until_[at] = 0;
  return true;
}

bool RowAllocator::grow_group(Group& g, int sequence, int64_t tokens) {
  const auto at = static_cast<size_t>(sequence);
  const int64_t before = g.units[at], units = g.units_of(tokens);
  if (units <= before) return true;
  const int64_t blocks =
      g.pooled() ? ceil_div(units, g.block_units) - ceil_div(before, g.block_units) : int64_t{0};
  if (g.pooled() && blocks >= g.refused_blocks) return false;
  const bool expected = g.used_blocks + blocks <= g.pool_blocks;
  const Growth growth{.sequence = sequence, .first = before, .used = before, .units = units};
  try {
    g.placement->reserve(0, {&growth, 1});
  } catch (const std::bad_alloc&) {
    if (g.pooled() && expected) throw std::logic_error("a pool refuses blocks that it has");
    if (g.pooled()) g.refused_blocks = blocks;
    return false;
  }
  if (g.pooled() && !expected) throw std::logic_error("a pool gives blocks that it does not have");
  g.units[at] = units;
  g.used_blocks += blocks;
  return true;
}

bool RowAllocator::grow_groups(int sequence, int64_t tokens) {
  const auto at = static_cast<size_t>(sequence);
  int64_t covered = std::numeric_limits<int64_t>::max();
  for (const auto& g : groups_) {
    if (!grow_group(*g, sequence, tokens)) return false;
    const int64_t held = g->pooled() ? ceil_div(g->units[at], g->block_units) * g->block_units : g->units[at];
    // A slot holds at most one token, and once all slots are there, none is added.
    if (held < g->units_of(g->shape.max_tokens)) covered = std::min(covered, held * g->context.unit.rows);
  }
  covered_until_[at] = std::max(covered, tokens);
  return true;
}

void RowAllocator::close(int sequence) {
  const auto at = static_cast<size_t>(sequence);
  for (const auto& g : groups_) {
    g->placement->close(sequence);
    if (g->pooled()) {
      const int64_t held = held_[at].empty() ? 0 : std::ssize(held_[at]) * g->blocks_of(unit_tokens_);
      g->used_blocks -= ceil_div(g->units[at], g->block_units) - held;
    }
    g->refused_blocks = std::numeric_limits<int64_t>::max();
    g->units[at] = 0;
  }
  for (const auto& held : held_[at]) held->drop_user();
  held_[at].clear();
  budget_->used -= state_bytes_;
}

bool RowAllocator::can_ever_hold(int64_t tokens) const {
  int64_t bytes = state_bytes_;
  for (const auto& g : groups_) {
    if (tokens > g->shape.max_tokens) return false;
    if (g->pooled() && g->blocks_of(tokens) > g->pool_blocks) return false;
    bytes += g->layers * (g->own_bytes(tokens) + (g->pooled() ? g->pool_bytes(g->pool_blocks) : 0));
  }
  return bytes <= budget_->limit;
}

bool RowAllocator::has_room(int64_t tokens, double watermark) const {
  for (const auto& g : groups_) {
    if (!g->pooled()) continue;
    // Units that no sequence has go as soon as their room is wanted.
    const int64_t unused = unit_tokens_ == 0 ? 0 : units_unused_ * g->blocks_of(unit_tokens_);
    const double free = static_cast<double>(g->pool_blocks - g->used_blocks + unused - g->blocks_of(tokens));
    if (free < watermark * static_cast<double>(g->pool_blocks)) return false;
  }
  return true;
}

int64_t RowAllocator::room_bytes() const { return budget_->limit; }

int64_t RowAllocator::allocated_bytes() const { return budget_->used; }

int64_t RowAllocator::held_bytes() const {
  int64_t bytes = budget_->used;
  for (const auto& g : groups_) bytes -= (g->pool_blocks - g->used_blocks) * g->block_bytes() * g->layers;
  return bytes;
}

double RowAllocator::payload_bytes(int64_t tokens) const {
  double bytes = 0.0;
  for (const Kept& k : kept_)
    bytes += static_cast<double>(std::min(tokens, k.most_rows) * k.layers) * k.row_bytes;
  return bytes;
}

double RowAllocator::stored_bytes(int64_t tokens) const {
  double bytes = 0.0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& g = *groups_[i];
    const Kept& k = kept_[i];
    const double rows = static_cast<double>(std::min(tokens, k.most_rows) * k.layers) * k.row_bytes;
    bytes += ResidualBuffer::needed(g.codec)
                 ? static_cast<double>(g.units_of(tokens) * g.unit_bytes() * g.layers)
                 : rows;
  }
  return bytes;
}

int64_t RowAllocator::reserved_bytes() const {
  int64_t bytes = budget_->rows;
  for (const auto& g : groups_) bytes -= (g->pool_blocks - g->used_blocks) * g->block_bytes() * g->layers;
  return bytes;
}

int64_t RowAllocator::pool_blocks() const {
  int64_t blocks = 0;
  for (const auto& g : groups_) blocks += g->pool_blocks * g->layers;
  return blocks;
}

int64_t RowAllocator::blocks_in_use() const {
  int64_t blocks = 0;
  for (const auto& g : groups_) blocks += g->used_blocks * g->layers;
  return blocks;
}

std::string RowAllocator::refuses_sharing(int64_t unit_tokens) const {
  if (unit_tokens < 1) return "a unit has at least 1 token";
  for (const auto& g : groups_) {
    if (!g->pooled() || g->placement->block_units() == 0) return "only blocks of paged placements are shared";
    if (ResidualBuffer::needed(g->codec)) return "the codec keeps the newest tokens of a sequence apart";
    if (g->slots(g->shape.max_tokens) != g->shape.max_tokens) return "the retention drops tokens";
    if (unit_tokens % (g->block_units * g->context.unit.rows) != 0)
      return "blocks of " + std::to_string(g->block_units * g->context.unit.rows) + " tokens do not divide " +
             std::to_string(unit_tokens);
  }
  return state_bytes_ > 0 ? "states of a sequence belong to it alone" : "";
}

SharedBlock RowAllocator::hold(int sequence, int64_t unit) {
  std::vector<std::vector<SharedBlock>> blocks;
  for (const auto& g : groups_) {
    const int64_t count = g->blocks_of(unit_tokens_);
    std::vector<SharedBlock>& own = blocks.emplace_back();
    for (int64_t i = 0; i < count; ++i) own.push_back(g->placement->hold(sequence, unit * count + i));
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
    g.placement->adopt(sequence, blocks);
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
