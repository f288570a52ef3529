// The segments of a placement, by number: their owners, the free ones, and the memory of their rows.
//
// Segments lie in arenas, whose memory comes and goes as a whole: an arena is allocated when no other has a free segment, and
// freed when its last segment is given back. Where nothing else is said, an arena is one segment. Segments are taken from
// the first arena that has any, so that later ones empty; compact() moves long-lived segments out of arenas that are almost
// empty.
#pragma once

#include <memory>
#include <random>
#include <unordered_set>
#include <utility>
#include <vector>

#include "variants/core/counted_vector.h"
#include "variants/placement/segment_rows.h"

namespace kv {

using SegmentNumbers = CountedVector<int32_t>;
// The number of a slot of a file, which its last owner gives back.
using FileSlot = std::shared_ptr<const int64_t>;

class SegmentPool {
 public:
  struct Shape {
    int64_t segments = 0;      // the most, of which owners and free ones are counted as metadata; 0: no limit
    int64_t arena = 1;         // segments whose memory comes and goes together
    bool is_whole = false;     // all memory is there from the start, in one arena
    bool is_shuffled = false;  // free segments are used in no order within an arena
    int64_t units = 0;         // a segment's, of each head, where there is a limit
  };
  static Shape shape_of(const PoolSettings& settings, const PlacementContext& context);

  // The context outlives it.
  SegmentPool(const Shape& shape, AxisOrder order, const PlacementContext& context);

  int64_t in_use() const { return in_use_; }
  bool is_shared(int32_t segment) const { return owners_[static_cast<size_t>(segment)] > 1; }
  // Allocates memory for so many calls of take(), segments of `units` units. Throws std::bad_alloc and changes nothing.
  void make_room(int64_t segments, int64_t units, Tier tier = Tier::kHot);
  int32_t take();
  void add_owner(int32_t segment) { ++owners_[static_cast<size_t>(segment)]; }
  void drop_owner(int32_t segment);
  SegmentRows rows(int32_t segment) const;

  // Moves the segments of the emptiest arenas into the others, as long as that frees an arena, and tells those who hold them.
  // Returns from and to, in the order of the copies.
  std::vector<std::pair<int32_t, int32_t>> compact();

  // The tier of a segment that is an arena of its own.
  bool is_warm(int32_t segment) const { return arenas_[static_cast<size_t>(segment)].tier == Tier::kWarm; }
  const FileSlot& slot(int32_t segment) const { return arenas_[static_cast<size_t>(segment)].slot; }
  void move_to_warm(int32_t segment);
  void move_to_file(int32_t segment, FileSlot slot);

  // Bytes, for rows and metadata together, of a pool of which so many segments were taken and none given back.
  static int64_t bytes(const Shape& shape, const PlacementContext& context, int64_t taken);

  // Owns segments once more.
  class Held {
   public:
    Held(SegmentPool& pool, std::vector<int32_t> segments);
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held();
    const std::vector<int32_t>& segments() const { return segments_; }

   private:
    friend SegmentPool;
    SegmentPool& pool_;
    std::vector<int32_t> segments_;
  };

 private:
  struct Arena {
    RowMemory memory;
    int64_t units = 0;  // of a segment
    Tier tier = Tier::kHot;
    FileSlot slot;  // where its rows are, if they are not in memory
    bool is_held = false;
    int64_t free = 0;  // entries of its part of free_
  };
  int64_t size_of(int64_t arena) const;
  int64_t arena_of(int32_t segment) const;
  RowMemory memory_for(int64_t units, int64_t segments, Tier tier) const;
  void add_arena();
  void shuffle(std::mt19937_64& random, int64_t arena);
  void allocate(int64_t arena, int64_t units, Tier tier);
  void give_back_if_empty(int64_t arena);
  // Moves an arena's segments to those that are held.
  void vacate(int64_t arena, std::vector<std::pair<int32_t, int32_t>>& moved);

  const Shape shape_;
  const AxisOrder order_;
  const PlacementContext& context_;
  SegmentNumbers owners_, free_;  // free_: a stack for each arena, in its place
  std::vector<Arena> arenas_;
  std::unordered_set<Held*> held_;
  int64_t in_use_ = 0;
  int64_t free_held_ = 0;    // free segments whose memory is there
  int64_t first_free_ = 0;   // no held arena before it has a free segment
  int64_t first_empty_ = 0;  // all arenas before it are held
};

}  // namespace kv
