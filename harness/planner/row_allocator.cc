#include "harness/planner/row_allocator.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "variants/cache/layout.h"
#include "variants/storage/residual_buffer.h"

namespace kv::planner {

// What all groups together may hold.
struct RowAllocator::Budget {
  int64_t limit = 0, used = 0;
  int64_t rows = 0;  // of `used`
  void take(int64_t bytes) {
    if (bytes > limit - used) throw std::bad_alloc();
    used += bytes;
  }
};

namespace {

// Counts `times` each byte, for layers of which one stands for all.
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
  // Of rows that nothing reads or writes: no machine has memory there.
  std::byte* next_ = reinterpret_cast<std::byte*>(uintptr_t{1} << 60);
  std::unordered_map<std::byte*, Held> held_;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

struct RowAllocator::Group {
  Spec spec;
  CacheShape shape;  // of one layer
  int64_t layers;
  Codec codec;
  bool buffered;  // the codec keeps the newest rows raw
  PlacementContext context;
  std::unique_ptr<CountingMemory<Budget>> memory;
  std::unique_ptr<Placement> placement;
  int64_t block_units = 0;  // of a paged group; else 0
  int64_t pool_blocks = 0, used_blocks = 0;
  std::vector<int64_t> units;  // by sequence, that have room
  // The fewest blocks that the pool has refused since any came back: asking for as many again would only throw again.
  int64_t refused_blocks = std::numeric_limits<int64_t>::max();

  Group(const Spec& spec_, const CacheShape& shape_, int64_t layers_)
      : spec(spec_),
        shape(shape_),
        layers(layers_),
        codec(codec_for(spec, shape)),
        buffered(ResidualBuffer::needed(codec)),
        context(placement_context(shape, unit_layout(codec, shape), slots(shape.max_tokens), nullptr)) {
    if (spec.placement.values.contains("pool"))
      block_units = spec.placement.integer("block") / context.unit.rows;
  }

  bool paged() const { return block_units > 0; }
  int64_t slots(int64_t tokens) const {
    return retention_of(spec).slots(spec.retention, {shape.max_tokens, tokens, 0});
  }
  int64_t units_of(int64_t tokens) const {
    const int64_t rows = slots(tokens);
    return buffered ? ResidualBuffer::encoded_rows(codec, rows) / context.unit.rows : rows;
  }
  int64_t blocks_of(int64_t tokens) const { return ceil_div(units_of(tokens), block_units); }
  // At least one, where a codec still has all rows in its buffer.
  int64_t usual_blocks(int64_t tokens) const { return std::max<int64_t>(1, blocks_of(tokens)); }
  int64_t unit_bytes() const { return context.unit_bytes() * context.heads; }
  int64_t block_bytes() const { return unit_bytes() * block_units; }
  // One layer of a sequence of so many tokens, outside of the pool.
  int64_t own_bytes(int64_t tokens) const {
    return placement_of(spec).layer_bytes(spec.placement, context, units_of(tokens));
  }
  // Codecs' buffers of raw rows, and what a retention knows of its rows.
  int64_t state_bytes() const {
    const int64_t buffer =
        buffered ? ResidualBuffer::bytes(codec, shape.kv_heads, shape.head_dim, shape.is_latent()) : 0;
    return layers *
           (buffer + retention_of(spec).metadata_bytes(spec.retention, shape.max_tokens) * shape.kv_heads);
  }
};

RowAllocator::~RowAllocator() = default;

namespace {

ModelShape shape_of_model(const config::Geometry& g, const Room& room) {
  return {{.layers = g.model_layers,
           .q_heads = g.q_heads,
           .kv_heads = g.kv_heads,
           .head_dim = g.head_dim,
           .max_tokens = room.max_tokens,
           .max_sequences = room.max_sequences,
           .value_dim = g.value_dim},
          g.kinds,
          g.linear};
}

std::string refused(const Spec& spec) {
  if (retention_of(spec).cuts_prompt)
    return "'" + spec.retention.name + "' needs a prompt whole, and here prompts are read in chunks";
  if (spec.placement.name == "tiered") return "rows of a second tier are not replayed";
  const auto pool = spec.placement.values.find("pool");
  if (pool != spec.placement.values.end() && pool->second != "0")
    return "the memory decides how large the pool is: leave pool= out";
  return "";
}

}  // namespace

std::vector<std::unique_ptr<RowAllocator::Group>> RowAllocator::groups(const config::Geometry& geometry,
                                                                       const LayerSpecs& specs,
                                                                       const Room& room) {
  std::vector<std::unique_ptr<Group>> all;
  const ModelShape shape = shape_of_model(geometry, room);
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
  const ModelShape shape = shape_of_model(geometry, room);
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
  const ModelShape shape = shape_of_model(geometry, room);
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
    group->placement = placement_of(group->spec).make(group->spec.placement, group->context);
  }
}

void RowAllocator::size_pools(const Room& room) {
  // Of a usual sequence: what lies in pools, and what does not.
  double pooled = 0.0, own = static_cast<double>(state_bytes_);
  constexpr double kBlockEntries = 2 * sizeof(int32_t);  // in the free list, and its owners
  const auto bytes_of = [&](const Group& g) {
    return static_cast<double>(g.layers) * (static_cast<double>(g.block_bytes()) + kBlockEntries);
  };
  for (const auto& g : groups_) {
    own += static_cast<double>(g->layers * g->own_bytes(room.typical_tokens));
    if (g->paged()) pooled += static_cast<double>(g->usual_blocks(room.typical_tokens)) * bytes_of(*g);
  }
  if (pooled == 0.0) return;
  const auto bytes = static_cast<double>(room.bytes);
  const double sequences = std::clamp(bytes / (own + pooled), 1.0, static_cast<double>(room.max_sequences));
  const double left = bytes - sequences * own;
  for (const auto& g : groups_) {
    if (!g->paged()) continue;
    const double blocks = left / pooled * static_cast<double>(g->usual_blocks(room.typical_tokens));
    constexpr double kMost = 1 << 30;
    g->pool_blocks = static_cast<int64_t>(std::clamp(blocks, 0.0, kMost));
    if (g->pool_blocks == 0) throw std::bad_alloc();
    g->spec.placement.values["pool"] = std::to_string(g->pool_blocks);
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
  covered_until_[at] = 0;
  return true;
}

bool RowAllocator::grow_group(Group& g, int sequence, int64_t tokens) {
  const auto at = static_cast<size_t>(sequence);
  const int64_t before = g.units[at], units = g.units_of(tokens);
  if (units <= before) return true;
  const int64_t blocks =
      g.paged() ? ceil_div(units, g.block_units) - ceil_div(before, g.block_units) : int64_t{0};
  if (g.paged() && blocks >= g.refused_blocks) return false;
  const bool expected = g.used_blocks + blocks <= g.pool_blocks;
  const Growth growth{.sequence = sequence, .first = before, .used = before, .units = units};
  try {
    g.placement->reserve(0, {&growth, 1});
  } catch (const std::bad_alloc&) {
    if (g.paged() && expected) throw std::logic_error("a pool refuses blocks that it has");
    if (g.paged()) g.refused_blocks = blocks;
    return false;
  }
  if (g.paged() && !expected) throw std::logic_error("a pool gives blocks that it does not have");
  g.units[at] = units;
  g.used_blocks += blocks;
  return true;
}

bool RowAllocator::grow_groups(int sequence, int64_t tokens) {
  const auto at = static_cast<size_t>(sequence);
  int64_t covered = std::numeric_limits<int64_t>::max();
  for (const auto& g : groups_) {
    if (!grow_group(*g, sequence, tokens)) return false;
    const int64_t held = g->paged() ? ceil_div(g->units[at], g->block_units) * g->block_units : g->units[at];
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
    if (g->paged()) g->used_blocks -= ceil_div(g->units[at], g->block_units);
    g->refused_blocks = std::numeric_limits<int64_t>::max();
    g->units[at] = 0;
  }
  budget_->used -= state_bytes_;
}

bool RowAllocator::can_ever_hold(int64_t tokens) const {
  int64_t bytes = state_bytes_;
  for (const auto& g : groups_) {
    if (tokens > g->shape.max_tokens) return false;
    if (g->paged() && g->blocks_of(tokens) > g->pool_blocks) return false;
    bytes += g->layers * (g->own_bytes(tokens) + (g->paged() ? g->pool_blocks * (g->block_bytes() + 8) : 0));
  }
  return bytes <= budget_->limit;
}

bool RowAllocator::has_room(int64_t tokens, double watermark) const {
  for (const auto& g : groups_) {
    if (!g->paged()) continue;
    const double free = static_cast<double>(g->pool_blocks - g->used_blocks - g->blocks_of(tokens));
    if (free < watermark * static_cast<double>(g->pool_blocks)) return false;
  }
  return true;
}

int64_t RowAllocator::room_bytes() const { return budget_->limit; }

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
    bytes += g.buffered ? static_cast<double>(g.units_of(tokens) * g.unit_bytes() * g.layers) : rows;
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

}  // namespace kv::planner
