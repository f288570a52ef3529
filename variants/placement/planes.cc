// Addresses and spans in planes of either axis order, how planes grow, and what is read in their place.
#include "variants/placement/planes.h"

#include <new>
#include <tuple>
#include <utility>

namespace kv {

Parameter layout_parameter() {
  return Parameter::choice("layout", {"bhsd", "bshd"}, "order of heads and rows in memory");
}

AxisOrder axis_order(const Stage& stage) {
  return stage.text("layout") == "bshd" ? AxisOrder::kRowMajor : AxisOrder::kHeadMajor;
}

void add_spans(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& stride, int64_t rows, SpanList& out) {
  // Other heads between the units of a side that packs several of its groups into a unit break it there.
  const bool one_span = stride == unit.bytes || (unit.k.group == unit.rows && unit.v.group == unit.rows);
  const int64_t step = one_span ? rows : unit.rows;
  for (int64_t row = 0; row < rows; row += step) {
    std::array<const std::byte*, kPlanes> first{};
    for (int p = 0; p < kPlanes; ++p) first[p] = base[p] ? base[p] + row / unit.rows * stride[p] : nullptr;
    out.push_back(make_span(unit, first, stride, std::min(step, rows - row)));
  }
}

Planes::Planes(const PlacementContext& context, int64_t capacity_units, ByteKind data_kind,
               ByteKind meta_kind, AxisOrder order, Tier tier)
    : context_(&context), capacity_(capacity_units), order_(order) {
  const auto bytes = [&](int p) {
    return static_cast<size_t>(context.unit.bytes[p] * context.heads * capacity_units);
  };
  const bool joined = tier == Tier::kWarm;
  for (const auto& [k, v, kind] :
       {std::tuple{kKData, kVData, data_kind}, std::tuple{kKMeta, kVMeta, meta_kind}}) {
    block_[k] = Block::of_rows(*context.memory, bytes(k) + (joined ? bytes(v) : 0), kind, tier);
    if (!joined) block_[v] = Block::of_rows(*context.memory, bytes(v), kind, tier);
    if (bytes(k) > 0) plane_[k] = block_[k].data();
    if (bytes(v) > 0) plane_[v] = joined ? block_[k].data() + bytes(k) : block_[v].data();
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
    if (plane_[p]) address.plane[p] = plane_[p] + head * head_stride(p) + unit * unit_stride(p);
  }
  return address;
}

void Planes::spans(int head, int64_t from, int64_t rows, SpanList& out) const {
  if (from >= rows) return;
  std::array<int64_t, kPlanes> stride;
  for (int p = 0; p < kPlanes; ++p) stride[p] = unit_stride(p);
  const UnitAddress first = at(head, from / context_->unit.rows);
  add_spans(context_->unit, {first.plane[0], first.plane[1], first.plane[2], first.plane[3]}, stride,
            rows - from, out);
}

void Planes::copy_from(const Planes& other, int64_t units, int64_t at) {
  if (units == 0) return;
  const int heads = context_->heads, repeats = heads / other.context_->heads;
  const bool rows_alike = order_ == AxisOrder::kRowMajor && repeats == 1;
  for (int p = 0; p < kPlanes; ++p) {
    if (!plane_[p]) continue;
    std::byte* to = plane_[p] + at * unit_stride(p);
    const std::byte* from = other.plane_[p];
    // A copy moves units that lie side by side on both sides: of all heads, of one head, or a single one.
    const int64_t together = order_ == AxisOrder::kRowMajor && !rows_alike ? 1 : units;
    const auto bytes =
        static_cast<size_t>(together * (rows_alike ? unit_stride(p) : context_->unit.bytes[p]));
    for (int64_t unit = 0; unit < units; unit += together) {
      for (int head = 0; head < (rows_alike ? 1 : heads); ++head) {
        context_->memory->copy(to + head * head_stride(p) + unit * unit_stride(p),
                               from + head / repeats * other.head_stride(p) + unit * other.unit_stride(p),
                               bytes);
      }
    }
  }
}

int64_t planes_bytes(const PlacementContext& context, int64_t units) {
  return context.unit_bytes() * context.heads * units;
}

namespace {

int repeats_of(ReadMode mode, const PlacementContext& context) {
  return mode == ReadMode::kRepeat ? context.group : 1;
}

PlacementContext repeated(PlacementContext context, int repeats) {
  context.heads *= repeats;
  return context;
}

}  // namespace

ReadCopies::ReadCopies(const Stage& stage, const PlacementContext& context)
    : repeats_(repeats_of(mode(stage), context)),
      on_(mode(stage) == ReadMode::kCopy || repeats_ > 1),
      order_(axis_order(stage)),
      context_(repeated(context, repeats_)) {}

Parameter ReadCopies::parameter(std::vector<std::string_view> choices) {
  const bool copies = choices.size() > 2;
  return Parameter::choice("read", std::move(choices),
                           copies ? "in place, from one copy of all rows, or from one for every query head"
                                  : "in place, or from a copy of all rows for every query head");
}

ReadMode ReadCopies::mode(const Stage& stage) {
  const std::string& read = stage.text("read");
  return read == "repeat" ? ReadMode::kRepeat : read == "copy" ? ReadMode::kCopy : ReadMode::kInPlace;
}

int64_t ReadCopies::bytes(ReadMode mode, const PlacementContext& context, int64_t units) {
  const int repeats = repeats_of(mode, context);
  return mode == ReadMode::kCopy || repeats > 1 ? planes_bytes(context, units) * repeats : 0;
}

Planes& ReadCopies::renew(int sequence, int layer, int64_t units) {
  if (static_cast<size_t>(sequence) >= copies_.size()) copies_.resize(static_cast<size_t>(sequence) + 1);
  copies_[sequence].resize(static_cast<size_t>(context_.layers));
  Planes& copy = copies_[sequence][layer];
  copy = Planes();
  copy = Planes(context_, units, ByteKind::kWorkspace, ByteKind::kWorkspace, order_);
  return copy;
}

void ReadCopies::close(int sequence) {
  if (static_cast<size_t>(sequence) < copies_.size()) copies_[sequence].clear();
}

void PlanesPlacement::open(int sequence) {
  if (static_cast<size_t>(sequence) >= planes_.size()) planes_.resize(static_cast<size_t>(sequence) + 1);
  planes_[sequence].resize(static_cast<size_t>(context_.layers));
}

void PlanesPlacement::close(int sequence) {
  copies_.close(sequence);
  planes_[sequence].clear();
}

void PlanesPlacement::view(int sequence, int layer, int64_t units) {
  if (!copies_.on()) return;
  copies_.renew(sequence, layer, units).copy_from(planes(sequence, layer), units);
  note_move();
}

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
  (copies_.on() ? copies_.of(sequence, layer) : planes(sequence, layer)).spans(head, from, rows, out);
}

Planes& PlanesPlacement::planes(int sequence, int layer) { return planes_[sequence][layer]; }

Planes PlanesPlacement::make_planes(int64_t capacity) const {
  return Planes(context_, capacity, ByteKind::kPayload, ByteKind::kMetadata, order_);
}

void PlanesPlacement::regrow(int sequence, int layer, int64_t used, int64_t capacity) {
  Planes grown = make_planes(capacity);
  Planes& old = planes(sequence, layer);
  grown.copy_from(old, used);
  old = std::move(grown);
  note_move();
}

void PlanesPlacement::shrink(int sequence, int layer, int64_t used, int64_t capacity) {
  if (capacity >= planes(sequence, layer).capacity()) return;
  try {
    regrow(sequence, layer, used, capacity);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace kv
