// The blocks of a pool: the free ones, the owners of each, and the memory of their rows.
//
// The memory is allocated at once, or in segments of so many blocks: a segment is allocated when the others are full, and
// freed when its last block is given back. Blocks are taken from the first segment that has any, so that later segments
// empty; compact() moves long-lived blocks out of segments that are almost empty.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "variants/core/memory.h"
#include "variants/core/placement.h"

namespace kv {

// Counted int32 numbers.
class Numbers {
 public:
  Numbers() = default;
  Numbers(Memory& memory, int64_t count, int32_t value);
  int32_t* data() const { return reinterpret_cast<int32_t*>(block_.data()); }
  int64_t size() const { return count_; }
  int32_t& operator[](int64_t i) const { return data()[i]; }

 private:
  Block block_;
  int64_t count_ = 0;
};

class BlockPool {
 public:
  struct Shape {
    int64_t blocks;   // the most
    int64_t segment;  // blocks that come and go together; 0: all are there from the start
    std::array<int64_t, kPlanes> block_bytes;  // by plane, all heads
    bool shuffled;                             // free blocks are used in no order within a segment
  };
  BlockPool(Memory& memory, const Shape& shape);

  int64_t blocks() const { return owners_.size(); }
  int64_t free() const { return free_count_; }
  bool moves_blocks() const { return shape_.segment > 0; }
  bool shared(int32_t block) const { return owners_[block] > 1; }
  // Allocates memory for so many calls of take(). Throws std::bad_alloc and changes nothing.
  void make_room(int64_t blocks);
  int32_t take();
  void add_owner(int32_t block) { ++owners_[block]; }
  void drop_owner(int32_t block);
  // The block's bytes; null where there is no such plane.
  std::byte* data(int plane, int32_t block) const;

  // Moves the blocks of the emptiest segments into the others, as long as that frees a segment. Returns from and to, in the
  // order of the copies.
  std::vector<std::pair<int32_t, int32_t>> compact();

  // Bytes, for planes and metadata together, of a pool of which so many blocks were taken and none given back.
  static int64_t bytes(const Shape& shape, int64_t taken);

 private:
  struct Segment {
    std::array<Block, kPlanes> plane;
    bool held = false;
    int64_t free = 0;  // entries of its part of free_
  };
  int64_t size_of(int64_t segment) const;
  int64_t segment_of(int32_t block) const { return block / segment_blocks_; }
  void allocate(int64_t segment);
  void give_back_if_empty(int64_t segment);
  // Moves a segment's blocks to those that are held.
  void vacate(int64_t segment, std::vector<std::pair<int32_t, int32_t>>& moved);

  Memory& memory_;
  const Shape shape_;
  const int64_t segment_blocks_;
  Numbers owners_, free_;  // free_: a stack for each segment, in its place
  std::vector<Segment> segments_;
  int64_t free_count_;      // free blocks, whether their memory is there or not
  int64_t free_held_ = 0;   // whose memory is there
  int64_t first_free_ = 0;  // no held segment before it has a free block
};

}  // namespace kv
