// Addresses and spans in planes of either axis order, and how planes grow.
#include "variants/placement/planes.h"

#include <utility>

namespace kv {

Planes::Planes(const PlacementContext& context, int64_t capacity_units, ByteKind data_kind,
               ByteKind meta_kind, AxisOrder order, Tier tier)
    : context_(&context), capacity_(capacity_units), order_(order) {
  for (int p = 0; p < kPlanes; ++p) {
    const bool meta = p == kKMeta || p == kVMeta;
    const int64_t bytes = context.unit.bytes[p] * context.heads * capacity_units;
    plane_[p] =
        Block::of_rows(*context.memory, static_cast<size_t>(bytes), meta ? meta_kind : data_kind, tier);
  }
}

int64_t Planes::unit_stride(int plane) const {
  return context_->unit.bytes[plane] * (order_ == AxisOrder::kHeadMajor ? 1 : context_->heads);
}

int64_t Planes::head_stride(int plane) const {
  return context_->unit.bytes[plane] * (order_ == AxisOrder::kHeadMajor ? capacity_ : 1);
}

UnitAddress Planes::at(int head, int64_t unit) const {
  UnitAddress address;
  for (int p = 0; p < kPlanes; ++p) {
    if (plane_[p]) address.plane[p] = plane_[p].data() + head * head_stride(p) + unit * unit_stride(p);
  }
  return address;
}

void Planes::spans(int head, int64_t from, int64_t rows, SpanList& out) const {
  if (from >= rows) return;
  std::array<int64_t, kPlanes> stride;
  for (int p = 0; p < kPlanes; ++p) stride[p] = unit_stride(p);
  // Row-major planes interleave heads between units, so a side that packs several of its groups into a unit
  // is broken there.
  const UnitLayout& unit = context_->unit;
  const bool one_span =
      order_ == AxisOrder::kHeadMajor || (unit.k.group == unit.rows && unit.v.group == unit.rows);
  const int64_t step = one_span ? rows - from : unit.rows;
  for (int64_t row = from; row < rows; row += step) {
    const UnitAddress first = at(head, row / context_->unit.rows);
    const std::array<const std::byte*, kPlanes> base{first.plane[0], first.plane[1], first.plane[2],
                                                     first.plane[3]};
    out.push_back(make_span(context_->unit, base, stride, std::min(step, rows - row)));
  }
}

void Planes::copy_from(const Planes& other, int64_t units) {
  if (units == 0) return;
  for (int p = 0; p < kPlanes; ++p) {
    if (!plane_[p]) continue;
    if (order_ == AxisOrder::kRowMajor) {
      context_->memory->copy(plane_[p].data(), other.plane_[p].data(),
                             static_cast<size_t>(units * unit_stride(p)));
      continue;
    }
    for (int head = 0; head < context_->heads; ++head) {
      context_->memory->copy(plane_[p].data() + head * head_stride(p),
                             other.plane_[p].data() + head * other.head_stride(p),
                             static_cast<size_t>(units * unit_stride(p)));
    }
  }
}

int64_t planes_bytes(const PlacementContext& context, int64_t units) {
  return context.unit_bytes() * context.heads * units;
}

void PlanesPlacement::open(int sequence) {
  if (static_cast<size_t>(sequence) >= planes_.size()) planes_.resize(static_cast<size_t>(sequence) + 1);
  planes_[sequence].resize(static_cast<size_t>(context_.layers));
}

void PlanesPlacement::close(int sequence) { planes_[sequence].clear(); }

void PlanesPlacement::reserve(int layer, std::span<const Growth> growths) {
  for (const Growth& g : growths) grow(g.sequence, layer, g.used, g.units);
}

void PlanesPlacement::fork(int from, int to, const std::vector<int64_t>& units) {
  for (int layer = 0; layer < context_.layers; ++layer) {
    grow(to, layer, 0, units[layer]);
    planes(to, layer).copy_from(planes(from, layer), units[layer]);
  }
}

UnitAddress PlanesPlacement::at(int sequence, int layer, int head, int64_t unit) {
  return planes(sequence, layer).at(head, unit);
}

void PlanesPlacement::spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) {
  planes(sequence, layer).spans(head, from, rows, out);
}

Planes& PlanesPlacement::planes(int sequence, int layer) { return planes_[sequence][layer]; }

void PlanesPlacement::regrow(int sequence, int layer, int64_t used, int64_t capacity) {
  Planes grown(context_, capacity, ByteKind::kPayload, ByteKind::kMetadata);
  Planes& old = planes(sequence, layer);
  grown.copy_from(old, used);
  old = std::move(grown);
  note_move();
}

}  // namespace kv
