// Spans over rows of either axis order, and copies of them.
#include "variants/placement/segment_rows.h"

#include <algorithm>
#include <tuple>

namespace kv {

Parameter layout_parameter() {
  return Parameter::choice("layout", {"bhsd", "bshd"}, "order of heads and rows in memory");
}

AxisOrder axis_order(const Stage& stage) {
  return stage.text("layout") == "bshd" ? AxisOrder::kRowMajor : AxisOrder::kHeadMajor;
}

int64_t planes_bytes(const PlacementContext& context, int64_t units) {
  return context.unit_bytes() * context.heads * units;
}

int64_t segments_bytes(const PlacementContext& context, int64_t segment_rows, int64_t units) {
  const int64_t each = segment_rows / context.unit.rows;
  return planes_bytes(context, (units + each - 1) / each * each);
}

void SegmentRows::spans(int head, const HeadTables& tables, int64_t from, int64_t rows, SpanList& out) const {
  std::array<int64_t, kPlanes> stride;
  for (int p = 0; p < kPlanes; ++p) stride[p] = unit_stride(p);
  // Other heads between the units of a side that packs several of its groups into a unit break it there.
  const bool one_span = stride == unit->bytes || (unit->k.group == unit->rows && unit->v.group == unit->rows);
  const int64_t step = one_span ? rows - from : unit->rows;
  for (int64_t row = from; row < rows; row += step) {
    const UnitAddress first = at(head, row / unit->rows, tables);
    out.push_back(make_span(*unit, {first.plane[0], first.plane[1], first.plane[2], first.plane[3]}, stride,
                            std::min(step, rows - row)));
  }
}

void SegmentRows::copy_from(Memory& memory, const SegmentRows& other, int64_t units, int64_t to) const {
  if (units == 0) return;
  const int repeats = heads / other.heads;
  const bool is_whole = units == capacity && units == other.capacity;
  // A copy moves units that lie side by side on both sides: of all heads, of one head, or a single one.
  const bool all_heads = repeats == 1 && (order == AxisOrder::kRowMajor || is_whole);
  const int64_t together = all_heads || order == AxisOrder::kHeadMajor ? units : 1;
  for (int p = 0; p < kPlanes; ++p) {
    if (!plane[p]) continue;
    const auto bytes = static_cast<size_t>(together * unit->bytes[p] * (all_heads ? heads : 1));
    for (int64_t number = 0; number < units; number += together) {
      for (int head = 0; head < (all_heads ? 1 : heads); ++head)
        memory.copy(at(head, to + number).plane[p], other.at(head / repeats, number).plane[p], bytes);
    }
  }
}

RowMemory::RowMemory(Memory& memory, const std::array<int64_t, kPlanes>& bytes, ByteKind data, ByteKind meta,
                     Tier tier) {
  const bool joined = tier == Tier::kWarm;
  for (const auto& [k, v, kind] : {std::tuple{kKData, kVData, data}, std::tuple{kKMeta, kVMeta, meta}}) {
    const auto of_k = static_cast<size_t>(bytes[k]), of_v = static_cast<size_t>(bytes[v]);
    block_[k] = Block::of_rows(memory, of_k + (joined ? of_v : 0), kind, tier);
    if (!joined) block_[v] = Block::of_rows(memory, of_v, kind, tier);
    if (of_k > 0) plane_[k] = block_[k].data();
    if (of_v > 0) plane_[v] = joined ? block_[k].data() + of_k : block_[v].data();
  }
}

}  // namespace kv
