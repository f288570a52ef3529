#include "variants/placement/segment_pool.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace kv {

SegmentPool::Shape SegmentPool::shape_of(const PoolSettings& settings, const PlacementContext& context) {
  Shape shape{.segments = settings.blocks,
              .arena = settings.segment_blocks,
              .is_whole = settings.segment_blocks == 0,
              .is_shuffled = settings.shuffled,
              .units = settings.block_rows / context.unit.rows};
  for (int layer = 0; settings.blocks == 0 && layer < context.layers; ++layer)
    shape.segments += (context.most_units(layer) + shape.units - 1) / shape.units * context.max_sequences;
  if (shape.is_whole) shape.arena = std::max<int64_t>(shape.segments, 1);
  return shape;
}

SegmentPool::SegmentPool(const Shape& shape, AxisOrder order, const PlacementContext& context)
    : shape_(shape),
      order_(order),
      context_(context),
      owners_(CountingAllocator<int32_t>(shape.segments > 0 ? context.memory : nullptr, ByteKind::kMetadata)),
      free_(owners_.get_allocator()) {
  owners_.reserve(static_cast<size_t>(shape.segments));
  free_.reserve(static_cast<size_t>(shape.segments));
  std::mt19937_64 random(0);
  while (std::ssize(owners_) < shape.segments) {
    add_arena();
    if (shape.is_shuffled) shuffle(random, std::ssize(arenas_) - 1);
  }
  if (shape.is_whole && shape.segments > 0) allocate(0, shape.units, Tier::kHot);
}

int64_t SegmentPool::size_of(int64_t arena) const {
  return shape_.segments > 0 ? std::min(shape_.arena, shape_.segments - arena * shape_.arena) : shape_.arena;
}

// Spares most a division.
int64_t SegmentPool::arena_of(int32_t segment) const {
  return shape_.is_whole ? 0 : shape_.arena == 1 ? segment : segment / shape_.arena;
}

// Free segments are a stack, lowest number on top.
void SegmentPool::add_arena() {
  const int64_t first = std::ssize(owners_), segments = size_of(std::ssize(arenas_));
  owners_.resize(static_cast<size_t>(first + segments));
  free_.resize(owners_.size());
  std::iota(free_.rbegin(), free_.rbegin() + segments, static_cast<int32_t>(first));
  arenas_.push_back({.memory = {}, .slot = {}, .free = segments});
}

void SegmentPool::shuffle(std::mt19937_64& random, int64_t arena) {
  const auto first = free_.begin() + arena * shape_.arena;
  for (int64_t i = size_of(arena) - 1; i > 0; --i)
    std::swap(first[i], first[static_cast<int64_t>(random() % static_cast<uint64_t>(i + 1))]);
}

RowMemory SegmentPool::memory_for(int64_t units, int64_t segments, Tier tier) const {
  std::array<int64_t, kPlanes> bytes = context_.unit.bytes;
  for (int64_t& b : bytes) b *= context_.heads * units * segments;
  return RowMemory(*context_.memory, bytes, ByteKind::kPayload, ByteKind::kMetadata, tier);
}

void SegmentPool::allocate(int64_t number, int64_t units, Tier tier) {
  RowMemory memory = memory_for(units, size_of(number), tier);
  Arena& arena = arenas_[static_cast<size_t>(number)];
  arena.memory = std::move(memory);
  arena.units = units;
  arena.tier = tier;
  arena.is_held = true;
  free_held_ += arena.free;
  first_free_ = std::min(first_free_, number);
}

void SegmentPool::give_back_if_empty(int64_t number) {
  Arena& arena = arenas_[static_cast<size_t>(number)];
  if (shape_.is_whole || !arena.is_held || arena.free < size_of(number)) return;
  arena.memory = {};
  arena.slot = {};
  arena.is_held = false;
  free_held_ -= arena.free;
  first_empty_ = std::min(first_empty_, number);
}

void SegmentPool::make_room(int64_t segments, int64_t units, Tier tier) {
  if (shape_.segments > 0 && segments > shape_.segments - in_use_)
    throw OutOfBlocks(shape_.segments, in_use_, segments);
  std::vector<int64_t> fresh;
  try {
    for (; free_held_ < segments; ++first_empty_) {
      if (first_empty_ == std::ssize(arenas_)) add_arena();
      if (arenas_[static_cast<size_t>(first_empty_)].is_held) continue;
      allocate(first_empty_, units, tier);
      fresh.push_back(first_empty_);
    }
  } catch (const std::bad_alloc&) {
    for (const int64_t arena : fresh) give_back_if_empty(arena);
    throw;
  }
}

int32_t SegmentPool::take() {
  const auto has_none = [](const Arena& a) { return !a.is_held || a.free == 0; };
  while (has_none(arenas_[static_cast<size_t>(first_free_)])) ++first_free_;
  Arena& arena = arenas_[static_cast<size_t>(first_free_)];
  const int32_t segment = free_[static_cast<size_t>(first_free_ * shape_.arena + --arena.free)];
  ++in_use_;
  --free_held_;
  owners_[static_cast<size_t>(segment)] = 1;
  return segment;
}

void SegmentPool::drop_owner(int32_t segment) {
  if (--owners_[static_cast<size_t>(segment)] > 0) return;
  const int64_t number = arena_of(segment);
  Arena& arena = arenas_[static_cast<size_t>(number)];
  free_[static_cast<size_t>(number * shape_.arena + arena.free++)] = segment;
  --in_use_;
  ++free_held_;
  first_free_ = std::min(first_free_, number);
  give_back_if_empty(number);
}

SegmentRows SegmentPool::rows(int32_t segment) const {
  const int64_t number = arena_of(segment);
  const Arena& arena = arenas_[static_cast<size_t>(number)];
  SegmentRows rows{&context_.unit, context_.heads, order_, arena.units, arena.memory.plane()};
  if (shape_.arena == 1) return rows;
  const int64_t before = (segment - number * shape_.arena) * arena.units * context_.heads;
  for (int p = 0; p < kPlanes; ++p)
    if (rows.plane[p]) rows.plane[p] += before * context_.unit.bytes[p];
  return rows;
}

void SegmentPool::move_to_warm(int32_t segment) {
  Arena& arena = arenas_[static_cast<size_t>(segment)];
  RowMemory memory = memory_for(arena.units, 1, Tier::kWarm);
  SegmentRows warm = rows(segment);
  warm.plane = memory.plane();
  warm.copy_from(*context_.memory, rows(segment), arena.units);
  arena.memory = std::move(memory);
  arena.tier = Tier::kWarm;
}

void SegmentPool::move_to_file(int32_t segment, FileSlot slot) {
  Arena& arena = arenas_[static_cast<size_t>(segment)];
  arena.slot = std::move(slot);
  arena.memory = {};
}

std::vector<std::pair<int32_t, int32_t>> SegmentPool::compact() {
  std::vector<std::pair<int32_t, int32_t>> moved;
  if (shape_.arena == 1 || shape_.is_whole) return moved;
  std::vector<int64_t> leaving;
  for (int64_t a = 0; a < std::ssize(arenas_); ++a)
    if (arenas_[static_cast<size_t>(a)].is_held) leaving.push_back(a);
  // The fullest stay, as many as have room for all.
  const auto taken = [&](int64_t a) { return size_of(a) - arenas_[static_cast<size_t>(a)].free; };
  std::ranges::stable_sort(leaving, std::greater(), taken);
  int64_t used = in_use_;
  auto stays = leaving.begin();
  for (; used > 0 && stays != leaving.end(); ++stays) used -= size_of(*stays);
  leaving.erase(leaving.begin(), stays);
  for (const int64_t a : leaving) {
    arenas_[static_cast<size_t>(a)].is_held = false;  // take() looks elsewhere
    free_held_ -= arenas_[static_cast<size_t>(a)].free;
    first_empty_ = std::min(first_empty_, a);
  }
  for (const int64_t a : leaving) vacate(a, moved);
  const std::unordered_map<int32_t, int32_t> to(moved.begin(), moved.end());
  for (Held* held : held_) {
    for (int32_t& segment : held->segments_)
      if (const auto at = to.find(segment); at != to.end()) segment = at->second;
  }
  return moved;
}

void SegmentPool::vacate(int64_t number, std::vector<std::pair<int32_t, int32_t>>& moved) {
  Arena& arena = arenas_[static_cast<size_t>(number)];
  for (int64_t i = 0; i < size_of(number); ++i) {
    const auto segment = static_cast<int32_t>(number * shape_.arena + i);
    int32_t& owners = owners_[static_cast<size_t>(segment)];
    if (owners == 0) continue;
    const int32_t to = take();
    rows(to).copy_from(*context_.memory, rows(segment), arena.units);
    owners_[static_cast<size_t>(to)] = std::exchange(owners, 0);
    free_[static_cast<size_t>(number * shape_.arena + arena.free++)] = segment;
    --in_use_;
    moved.emplace_back(segment, to);
  }
  arena.memory = {};
}

int64_t SegmentPool::bytes(const Shape& shape, const PlacementContext& context, int64_t taken) {
  const int64_t whole = (taken + shape.arena - 1) / shape.arena * shape.arena;
  return planes_bytes(context,
                      shape.units * (shape.is_whole ? shape.segments : std::min(shape.segments, whole))) +
         2 * static_cast<int64_t>(sizeof(int32_t)) * shape.segments;
}

SegmentPool::Held::Held(SegmentPool& pool, std::vector<int32_t> segments)
    : pool_(pool), segments_(std::move(segments)) {
  pool_.held_.insert(this);
  for (const int32_t segment : segments_) pool_.add_owner(segment);
}

SegmentPool::Held::~Held() {
  pool_.held_.erase(this);
  for (const int32_t segment : segments_) pool_.drop_owner(segment);
}

}  // namespace kv
