// Copies that attention reads in place of the stored rows. `read=copy` gathers rows into fresh memory of the workspace at
// every view, like a tensor library whose slices own their memory. `read=repeat` copies K and V of a head for each of its
// query heads, like code without grouped reads (`repeat_kv`); it copies nothing if every query head has its own K and V.
#pragma once

#include <string_view>
#include <vector>

#include "variants/placement/segment_rows.h"

namespace kv {

class ReadCopies {
 public:
  ReadCopies(ReadMode mode, AxisOrder order, const PlacementContext& context);

  // The parameter `read`, with those of view, copy and repeat that a placement has.
  static Parameter parameter(std::vector<std::string_view> choices);
  static ReadMode mode(const Stage& stage);
  // The bytes of a copy of one layer's `units`, all heads; 0 where rows are read in place.
  static int64_t bytes(ReadMode mode, const PlacementContext& context, int64_t units);

  bool on() const { return on_; }
  int repeats() const { return repeats_; }
  // Room for `units` units, to be filled. The last copy is gone before, as when a tensor is dropped.
  const SegmentRows& renew(int sequence, int layer, int64_t units);
  const SegmentRows& of(int sequence, int layer) const { return copies_[sequence][layer].rows; }
  void close(int sequence);

 private:
  struct Copy {
    RowMemory memory;
    SegmentRows rows;
  };
  const int repeats_;
  const bool on_;
  const AxisOrder order_;
  const PlacementContext& context_;
  std::vector<std::vector<Copy>> copies_;  // [sequence][layer]
};

}  // namespace kv
