// The rows of a segment: units of all heads in four planes, [heads, units], or [units, heads] if the layout keeps the rows
// of a token side by side.
#pragma once

#include <array>
#include <cstdint>

#include "variants/core/entry.h"
#include "variants/core/placement.h"

namespace kv {

enum class AxisOrder { kHeadMajor, kRowMajor };  // [B,H,S,D] or [B,S,H,D]

// The parameter `layout` that placements share, and a stage's value of it.
Parameter layout_parameter();
AxisOrder axis_order(const Stage& stage);

// The bytes of one layer's `units`, all heads.
int64_t planes_bytes(const PlacementContext& context, int64_t units);
// Those of the segments of `segment_rows` rows that hold them.
int64_t segments_bytes(const PlacementContext& context, int64_t segment_rows, int64_t units);

// Rows in memory that something else owns.
struct SegmentRows {
  const UnitLayout* unit = nullptr;
  int heads = 0;
  AxisOrder order = AxisOrder::kHeadMajor;
  int64_t capacity = 0;                     // units
  std::array<std::byte*, kPlanes> plane{};  // null where the codec has no such plane

  // `tables`: the head's.
  UnitAddress at(int head, int64_t number, const HeadTables& tables = {}) const {
    UnitAddress address{{nullptr, tables.k, nullptr, tables.v}};
    for (int p = 0; p < kPlanes; ++p)
      if (plane[p]) address.plane[p] = plane[p] + head * head_stride(p) + number * unit_stride(p);
    return address;
  }
  // Appends the spans over rows [from, rows) of one head.
  void spans(int head, const HeadTables& tables, int64_t from, int64_t rows, SpanList& out) const;
  // Copies the first `units` units of every head from `other`, of the same order, to units [to, to + units). If these rows
  // have r times as many heads, each r consecutive heads are copies of one.
  void copy_from(Memory& memory, const SegmentRows& other, int64_t units, int64_t to = 0) const;

 private:
  int64_t unit_stride(int p) const { return unit->bytes[p] * (order == AxisOrder::kHeadMajor ? 1 : heads); }
  int64_t head_stride(int p) const {
    return unit->bytes[p] * (order == AxisOrder::kHeadMajor ? capacity : 1);
  }
};

// Memory for rows: a block for each plane. In the second pool V's planes lie behind K's, in K's blocks.
class RowMemory {
 public:
  RowMemory() = default;
  // `bytes` by plane.
  RowMemory(Memory& memory, const std::array<int64_t, kPlanes>& bytes, ByteKind data, ByteKind meta,
            Tier tier = Tier::kHot);
  const std::array<std::byte*, kPlanes>& plane() const { return plane_; }

 private:
  std::array<Block, kPlanes> block_;
  std::array<std::byte*, kPlanes> plane_{};
};

}  // namespace kv
