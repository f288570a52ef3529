#include "variants/placement/tiers.h"

#include <algorithm>

namespace kv {

TierBorders::TierBorders(const TierSettings& of, int64_t rows)
    : cold(std::max<int64_t>(0, rows - of.hot_rows - of.warm_rows) / of.piece_rows),
      not_hot(std::max<int64_t>(0, rows - of.hot_rows) / of.piece_rows) {}

int64_t slot_bytes(const PlacementContext& context, int64_t units) {
  return SpillFile::aligned(planes_bytes(context, units));
}

Tiers::Tiers(const TierSettings& settings, const PlacementContext& context, int64_t segment_units,
             SegmentPool& pool)
    : settings_(settings),
      context_(context),
      segment_units_(segment_units),
      pool_(pool),
      file_(*context.memory, settings.folder, settings.direct_io, slot_bytes(context, segment_units),
            settings.link_gbps),
      reader_(*context.memory, file_) {}

void Tiers::begin_growth() {
  slots_ = 0;
  moving_.clear();
}

// A shared segment moves once, and a fork may have moved it.
void Tiers::add_growth(std::span<const int32_t> segments, const Growth& g) {
  const int64_t rows = context_.unit.rows, cold = TierBorders(settings_, g.units * rows).cold;
  for (int64_t s = TierBorders(settings_, g.used * rows).cold; s < cold; ++s) {
    const bool exists = s < std::ssize(segments);
    const int32_t segment = exists ? segments[static_cast<size_t>(s)] : -1;
    slots_ += !exists || (!pool_.slot(segment) && moving_.insert(segment).second);
  }
}

// Backwards, and only as far as there are any, so that a step costs no more when there are many.
bool Tiers::settle(std::span<const int32_t> segments, int64_t units) {
  const TierBorders borders(settings_, units * context_.unit.rows);
  const auto settled = [&](int64_t s, bool cold) {
    return is_settled(segments[static_cast<size_t>(s)], cold);
  };
  int64_t first = borders.not_hot;
  while (first > 0 && !settled(first - 1, first - 1 < borders.cold)) --first;
  first = std::min(first, borders.cold);
  while (first > 0 && !settled(first - 1, true)) --first;
  bool moved = false;
  for (int64_t s = first; s < borders.not_hot; ++s) {
    const bool cold = s < borders.cold;
    if (settled(s, cold)) continue;
    const int32_t segment = segments[static_cast<size_t>(s)];
    cold ? to_file(segment) : pool_.move_to_warm(segment);
    moved = true;
  }
  return moved;
}

void Tiers::to_file(int32_t segment) {
  slot_rows(reader_.idle_buffer()).copy_from(*context_.memory, pool_.rows(segment), segment_units_);
  const FileSlot slot(new int64_t(file_.take()), [this](const int64_t* number) {
    file_.give_back(*number);
    delete number;
  });
  file_.write(*slot, reader_.idle_buffer());
  pool_.move_to_file(segment, slot);
}

std::shared_ptr<SegmentPool::Held> Tiers::brought_back(std::vector<int32_t> kept, int64_t units) {
  const TierBorders borders(settings_, units * context_.unit.rows);
  std::vector<int32_t> copies;
  const auto give_up = [&] {
    for (const int32_t copy : copies) pool_.drop_owner(copy);
  };
  try {
    for (int64_t s = borders.cold; s < std::ssize(kept); ++s) {
      int32_t& segment = kept[static_cast<size_t>(s)];
      const bool warm = s<borders.not_hot, partial = (s + 1) * segment_units_> units;
      const bool too_far = pool_.slot(segment) || (pool_.is_warm(segment) && !warm);
      if (!too_far && !(partial && pool_.is_shared(segment))) continue;
      copies.reserve(copies.size() + 1);
      segment = copy_of(segment, warm ? Tier::kWarm : Tier::kHot);
      copies.push_back(segment);
    }
    auto held = std::make_shared<SegmentPool::Held>(pool_, std::move(kept));
    give_up();  // they are held
    return held;
  } catch (...) {
    give_up();
    throw;
  }
}

int32_t Tiers::copy_of(int32_t segment, Tier tier) {
  pool_.make_room(1, segment_units_, tier);
  const int32_t copy = pool_.take();
  try {
    if (const FileSlot& slot = pool_.slot(segment)) {
      ReadAhead::Run reads(reader_, {slot.get(), 1});
      pool_.rows(copy).copy_from(*context_.memory, slot_rows(const_cast<std::byte*>(reads.next())),
                                 segment_units_);
    } else {
      pool_.rows(copy).copy_from(*context_.memory, pool_.rows(segment), segment_units_);
    }
  } catch (...) {
    pool_.drop_owner(copy);
    throw;
  }
  return copy;
}

// No kernels read the file, and a GPU's not the second pool.
int64_t Tiers::streamed(std::span<const int32_t> segments) const {
  const bool in_place = context_.memory->is_read_in_place(Tier::kWarm);
  return std::ranges::find_if(segments,
                              [&](int32_t s) { return !pool_.slot(s) && (in_place || !pool_.is_warm(s)); }) -
         segments.begin();
}

void Tiers::stream(std::span<const Streamed> pieces, const PieceVisitor& visit, const OtherWork& meanwhile) {
  std::vector<int64_t> slots;
  for (const Streamed& p : pieces)
    if (pool_.slot(p.segment)) slots.push_back(*pool_.slot(p.segment));
  ReadAhead::Run reads(reader_, slots);
  int held = 0;  // a piece of the file is held until the next visit returns
  for (const auto& [index, unit, segment] : pieces) {
    const bool of_file = pool_.slot(segment) != nullptr;
    if (!of_file) {
      visit(index, piece(unit, pool_.rows(segment), false));
    } else {
      while (meanwhile && !reads.is_there() && meanwhile()) {
      }
      visit(index, piece(unit, slot_rows(const_cast<std::byte*>(reads.next())), true));
    }
    for (; held > 0; --held) reads.give_back();
    held += of_file;
  }
}

SegmentRows Tiers::slot_rows(std::byte* slot) const {
  SegmentRows rows{&context_.unit, context_.heads, AxisOrder::kHeadMajor, segment_units_, {}};
  for (const Plane p : kPieceOrder) {
    const int64_t bytes = context_.unit.bytes[p] * context_.heads * segment_units_;
    if (bytes > 0) rows.plane[p] = slot;
    slot += bytes;
  }
  return rows;
}

Piece Tiers::piece(int64_t first_unit, const SegmentRows& rows, bool one_block) const {
  Piece piece{.first_unit = first_unit,
              .units = segment_units_,
              .base = {},
              .head_stride = {},
              .one_block = one_block};
  std::ranges::copy(rows.plane, piece.base.begin());
  for (int p = 0; p < kPlanes; ++p) piece.head_stride[p] = context_.unit.bytes[p] * segment_units_;
  return piece;
}

}  // namespace kv
