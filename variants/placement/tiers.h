// Slower tiers for older segments: a second pool of memory, and a file.
//
// A segment moves as a whole, once all its rows are older than the newest `hot` (to the second pool: on a GPU, pinned host
// memory; here, other host memory) or the newest `hot + warm` (to the file). Attention takes the file's segments one after
// the other while the next ones are being read (read_ahead.h), and rows in memory when none has come. A GPU's kernels get
// the second pool's segments in the same way. Forks keep sharing segments that move; the longest sharer decides a tier.
//
// Disk for a segment is reserved before the append that needs it, so a full disk refuses the append and loses nothing.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "variants/placement/read_ahead.h"
#include "variants/placement/segment_pool.h"
#include "variants/placement/spill_file.h"

namespace kv {

// The first segments of a list of so many rows: those outside the fast memory, and those of them in the file.
struct TierBorders {
  int64_t cold, not_hot;
  TierBorders(const TierSettings& settings, int64_t rows);
};

// The bytes of a file's slot for a segment of so many units.
int64_t slot_bytes(const PlacementContext& context, int64_t units);

class Tiers {
 public:
  // Context and pool outlive its use. Throws std::runtime_error where the folder can have no file.
  Tiers(const TierSettings& settings, const PlacementContext& context, int64_t segment_units,
        SegmentPool& pool);

  // Reserves disk for what lists are about to grow by: all of a call, or nothing. Throws DiskError.
  void begin_growth();
  void add_growth(std::span<const int32_t> segments, const Growth& growth);
  void reserve_disk() { file_.prepare(slots_); }

  // Moves segments of a list of `units` that have become too old for their place. Returns true if any has moved. Throws
  // DiskError or std::bad_alloc; a segment then stays where it is.
  bool settle(std::span<const int32_t> segments, int64_t units);
  // The first `kept` segments of a list, which will have `units`: those that are now among the newest are copies where these
  // lie, and so is a shared one that is now filled in part, since other owners may move theirs on, and only whole ones can be.
  std::shared_ptr<SegmentPool::Held> brought_back(std::vector<int32_t> kept, int64_t units);

  // Segments at the begin of a list that come to kernels in pieces.
  int64_t streamed(std::span<const int32_t> segments) const;
  struct Streamed {
    size_t index;  // of its sequence
    int64_t first_unit;
    int32_t segment;
  };
  void stream(std::span<const Streamed> pieces, const PieceVisitor& visit, const OtherWork& meanwhile);

 private:
  bool is_settled(int32_t segment, bool cold) const {
    return pool_.slot(segment) || (!cold && pool_.is_warm(segment));
  }
  void to_file(int32_t segment);
  int32_t copy_of(int32_t segment, Tier tier);
  // A slot's rows in memory: [plane][head][unit], planes in kPieceOrder.
  SegmentRows slot_rows(std::byte* slot) const;
  Piece piece(int64_t first_unit, const SegmentRows& rows, bool one_block) const;

  const TierSettings settings_;
  const PlacementContext& context_;
  const int64_t segment_units_;
  SegmentPool& pool_;
  SpillFile file_;
  ReadAhead reader_;
  int64_t slots_ = 0;  // of the append in progress
  std::set<int32_t> moving_;
};

}  // namespace kv
