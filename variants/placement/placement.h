// The rows of a cache's sequences: a list of segments for each sequence and layer. Placements differ in how the lists grow
// (GrowthPolicy), where segments' memory comes from, and whether older ones move to slower tiers.
//
// Forks share segments of equal size, even the last, partly filled one; whichever sequence writes to it next copies it
// first. One segment that holds all rows is copied by a fork. Lists are a number for each segment; only those of a pool,
// whose segments are few rows, are counted.
#pragma once

#include <memory>
#include <vector>

#include "variants/core/placement.h"
#include "variants/placement/read_copies.h"
#include "variants/placement/segment_pool.h"
#include "variants/placement/tiers.h"

namespace kv {

class Placement {
 public:
  Placement(const PlacementTraits& traits, const Stage& stage, const PlacementContext& context);
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
  virtual ~Placement() = default;

  // Sequence ids are small integers, chosen by the cache, reused after close(). Where open() throws, nothing is open.
  void open(int sequence);
  void close(int sequence);
  // `to` is open and empty; `units` [layers] are in use. Throws std::bad_alloc.
  void fork(int from, int to, const std::vector<int64_t>& units);

  // Makes every growth's units writable, for all heads, or throws std::bad_alloc; stored rows stay as they were. One call
  // for a whole batch, so that a pool can refuse it before any of it is taken.
  void reserve(int layer, std::span<const Growth> growths);
  // Virtual for a test's cache that puts rows elsewhere.
  virtual UnitAddress at(int sequence, int layer, int head, int64_t unit) {
    const int64_t number = unit / segment_units_;
    return pool_.rows(list(sequence, layer).segments[static_cast<size_t>(number)])
        .at(head, unit - number * segment_units_, context_.tables_of(layer, head));
  }
  // Units [i * this, (i + 1) * this) of a head lie at equal distances.
  int64_t run_units() const { return segment_units_; }

  // Only the first `units` units still hold data: the room behind them is given back where the placement holds no more than
  // it uses, and memory allows the smaller copy. Never fails.
  void trim(int sequence, int layer, int64_t units);
  // The same for units that may be written again, in two parts, so that all layers change or none: the returned call
  // cannot fail, and before it nothing changes. Throws std::bad_alloc or std::runtime_error where rows have to come back
  // from a slower memory and cannot.
  std::function<void()> prepare_truncation(int sequence, int layer, int64_t units);
  // Moves rows together so that memory left by other sequences can be given back; returns the bytes moved. Stored rows
  // stay as they are.
  int64_t compact();
  // Blocks that are taken of a pool; 0 without one.
  int64_t blocks_in_use() const { return traits_.pool ? pool_.in_use() : 0; }

  // Units of a block that sequences can share; 0 where they cannot.
  int64_t block_units() const { return is_segmented() ? segment_units_ : 0; }
  // A block of an open sequence, whose units all hold data in every layer.
  SharedBlock hold(int sequence, int64_t block);
  // The blocks begin a sequence that is open and empty.
  void adopt(int sequence, std::span<const SharedBlock> blocks);

  // Called once before reading: rows that have become too old for their tier move on, and a placement that reads through
  // a copy makes it.
  void view(int sequence, int layer, int64_t units);
  // Copies of each head's rows that attention reads, each by an equal part of the head's queries: 1, or the group where
  // view() makes a copy for every query head.
  int repeats() const { return copies_.repeats(); }
  // Appends the spans of rows [from, rows) in memory that kernels read. `head` is one of the heads * repeats() that are
  // read. `from` is 0 or the first row of a span that was given out before.
  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out);
  // Changes when rows have moved, so that spans given out before are void. Appends leave it alone: all earlier spans but
  // the last stay as they are.
  int64_t moves(int sequence, int layer) const { return list(sequence, layer).moves + shared_moves_; }

  bool has_tiers() const { return tiers_ != nullptr; }
  // Units [0, this) are not in memory that kernels read: spans() leaves them out, at() does not reach them,
  // and they come as pieces of a multiple of kSplitRows rows.
  int64_t streamed_units(int sequence, int layer) const;
  // Visits the pieces of each sequence in order, prefetching the next ones; `index` is into `sequences`. While a piece is
  // on its way, does some of the other work, if there is any. Throws std::runtime_error where reading fails.
  void stream(int layer, std::span<const int> sequences, const PieceVisitor& visit,
              const OtherWork& meanwhile = nullptr, const PieceRange& range = {});

 private:
  struct SegmentList {
    SegmentNumbers segments;
    int64_t moves = 0;
  };
  // An entry of a list that is to get a segment of its own. `used`: the units to copy from the one that it had.
  struct Need {
    SegmentList* list;
    size_t entry;
    int64_t used;
    bool was_shared;
  };

  SegmentList& list(int sequence, int layer) { return lists_[sequence][layer]; }
  const SegmentList& list(int sequence, int layer) const { return lists_[sequence][layer]; }
  bool is_segmented() const { return traits_.segment_rows != nullptr; }
  // Units of a segment that holds so many; of all that there can be where no capacity is stated.
  int64_t capacity(int layer, int64_t units) const;
  size_t segments_of(int64_t units) const {
    return static_cast<size_t>(units / segment_units_ + (units % segment_units_ != 0));
  }
  void grow(int layer, std::span<const Growth> growths);
  void find_needs(int layer, const Growth& growth);
  void give_segment(const Need& need);
  void cut(SegmentList& of, size_t segments);
  void settle(int sequence, int layer, int64_t units);

  const PlacementTraits traits_;
  const Stage stage_;
  const PlacementContext context_;
  const int64_t segment_units_;
  ReadCopies copies_;
  std::unique_ptr<Tiers> tiers_;  // outlives the pool's slots of its file
  SegmentPool pool_;
  std::vector<std::vector<SegmentList>> lists_;  // [sequence][layer]
  int64_t shared_moves_ = 0;                     // of segments that several sequences may have
  std::vector<Need> needs_;                      // the append in progress
};

}  // namespace kv
