#include "variants/placement/block_pool.h"

#include <algorithm>
#include <random>

namespace kv {

Numbers::Numbers(Memory& memory, int64_t count, int32_t value)
    : block_(memory, static_cast<size_t>(count) * sizeof(int32_t), ByteKind::kMetadata), count_(count) {
  std::fill_n(data(), count, value);
}

BlockPool::BlockPool(Memory& memory, const Shape& shape)
    : memory_(memory),
      shape_(shape),
      segment_blocks_(shape.segment > 0 ? shape.segment : std::max<int64_t>(shape.blocks, 1)),
      owners_(memory, shape.blocks, 0),
      free_(memory, shape.blocks, 0),
      segments_(static_cast<size_t>((shape.blocks + segment_blocks_ - 1) / segment_blocks_)),
      free_count_(shape.blocks) {
  std::mt19937_64 random(0);
  for (int64_t s = 0; s < std::ssize(segments_); ++s) {
    const int64_t first = s * segment_blocks_, blocks = size_of(s);
    // A stack, lowest number on top.
    for (int64_t i = 0; i < blocks; ++i) free_[first + i] = static_cast<int32_t>(first + blocks - 1 - i);
    for (int64_t i = blocks - 1; shape.shuffled && i > 0; --i)
      std::swap(free_[first + i],
                free_[first + static_cast<int64_t>(random() % static_cast<uint64_t>(i + 1))]);
    segments_[static_cast<size_t>(s)].free = blocks;
  }
  if (shape.segment == 0 && shape.blocks > 0) allocate(0);
}

int64_t BlockPool::size_of(int64_t segment) const {
  return std::min(segment_blocks_, shape_.blocks - segment * segment_blocks_);
}

void BlockPool::allocate(int64_t number) {
  Segment& segment = segments_[static_cast<size_t>(number)];
  std::array<Block, kPlanes> plane;
  for (int p = 0; p < kPlanes; ++p) {
    const bool meta = p == kKMeta || p == kVMeta;
    plane[p] = Block::of_rows(memory_, static_cast<size_t>(shape_.block_bytes[p] * size_of(number)),
                              meta ? ByteKind::kMetadata : ByteKind::kPayload);
  }
  segment.plane = std::move(plane);
  segment.held = true;
  free_held_ += segment.free;
  first_free_ = std::min(first_free_, number);
}

void BlockPool::give_back_if_empty(int64_t number) {
  Segment& segment = segments_[static_cast<size_t>(number)];
  if (shape_.segment == 0 || !segment.held || segment.free < size_of(number)) return;
  segment.plane = {};
  segment.held = false;
  free_held_ -= segment.free;
}

void BlockPool::make_room(int64_t blocks) {
  std::vector<int64_t> fresh;
  try {
    for (int64_t s = 0; free_held_ < blocks && s < std::ssize(segments_); ++s) {
      if (segments_[static_cast<size_t>(s)].held) continue;
      allocate(s);
      fresh.push_back(s);
    }
  } catch (const std::bad_alloc&) {
    for (const int64_t s : fresh) give_back_if_empty(s);
    throw;
  }
}

int32_t BlockPool::take() {
  const auto has_none = [](const Segment& s) { return !s.held || s.free == 0; };
  while (has_none(segments_[static_cast<size_t>(first_free_)])) ++first_free_;
  Segment& segment = segments_[static_cast<size_t>(first_free_)];
  const int32_t block = free_[first_free_ * segment_blocks_ + --segment.free];
  --free_count_;
  --free_held_;
  owners_[block] = 1;
  return block;
}

void BlockPool::drop_owner(int32_t block) {
  if (--owners_[block] > 0) return;
  const int64_t number = segment_of(block);
  Segment& segment = segments_[static_cast<size_t>(number)];
  free_[number * segment_blocks_ + segment.free++] = block;
  ++free_count_;
  ++free_held_;
  first_free_ = std::min(first_free_, number);
  give_back_if_empty(number);
}

std::byte* BlockPool::data(int plane, int32_t block) const {
  const int64_t number = segments_.size() == 1 ? 0 : segment_of(block);  // spares most pools a division
  const Block& rows = segments_[static_cast<size_t>(number)].plane[plane];
  return rows ? rows.data() + (block - number * segment_blocks_) * shape_.block_bytes[plane] : nullptr;
}

std::vector<std::pair<int32_t, int32_t>> BlockPool::compact() {
  std::vector<std::pair<int32_t, int32_t>> moved;
  if (shape_.segment == 0) return moved;
  std::vector<int64_t> leaving;
  int64_t used = blocks() - free_count_;
  for (int64_t s = 0; s < std::ssize(segments_); ++s)
    if (segments_[static_cast<size_t>(s)].held) leaving.push_back(s);
  // The fullest stay, as many as have room for all.
  std::stable_sort(leaving.begin(), leaving.end(), [&](int64_t a, int64_t b) {
    return size_of(a) - segments_[static_cast<size_t>(a)].free >
           size_of(b) - segments_[static_cast<size_t>(b)].free;
  });
  auto stays = leaving.begin();
  for (; used > 0 && stays != leaving.end(); ++stays) used -= size_of(*stays);
  leaving.erase(leaving.begin(), stays);
  for (const int64_t s : leaving) {
    segments_[static_cast<size_t>(s)].held = false;  // take() looks elsewhere
    free_held_ -= segments_[static_cast<size_t>(s)].free;
  }
  for (const int64_t s : leaving) vacate(s, moved);
  return moved;
}

void BlockPool::vacate(int64_t number, std::vector<std::pair<int32_t, int32_t>>& moved) {
  Segment& segment = segments_[static_cast<size_t>(number)];
  for (int64_t i = 0; i < size_of(number); ++i) {
    const auto block = static_cast<int32_t>(number * segment_blocks_ + i);
    if (owners_[block] == 0) continue;
    const int32_t to = take();
    for (int p = 0; p < kPlanes; ++p)
      if (segment.plane[p])
        memory_.copy(data(p, to), data(p, block), static_cast<size_t>(shape_.block_bytes[p]));
    owners_[to] = std::exchange(owners_[block], 0);
    free_[number * segment_blocks_ + segment.free++] = block;
    ++free_count_;
    moved.emplace_back(block, to);
  }
  segment.plane = {};
}

int64_t BlockPool::bytes(const Shape& shape, int64_t taken) {
  int64_t block = 0, held = shape.blocks;
  for (const int64_t bytes : shape.block_bytes) block += bytes;
  if (shape.segment > 0) held = std::min(held, (taken + shape.segment - 1) / shape.segment * shape.segment);
  return held * block + 2 * static_cast<int64_t>(sizeof(int32_t)) * shape.blocks;
}

}  // namespace kv
