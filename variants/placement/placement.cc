// Segments are made, shared, copied when their owner writes, and given back.
#include "variants/placement/placement.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace kv {
namespace {

SegmentPool::Shape shape_of(const PlacementTraits& traits, const Stage& stage,
                            const PlacementContext& context) {
  return traits.pool ? SegmentPool::shape_of(traits.pool(stage), context) : SegmentPool::Shape();
}

}  // namespace

std::unique_ptr<Placement> make_placement(const PlacementTraits& traits, const Stage& stage,
                                          const PlacementContext& context) {
  return std::make_unique<Placement>(traits, stage, context);
}

Placement::Placement(const PlacementTraits& traits, const Stage& stage, const PlacementContext& context)
    : traits_(traits),
      stage_(stage),
      context_(context),
      segment_units_(traits.segment_rows ? traits.segment_rows(stage) / context.unit.rows
                                         : std::numeric_limits<int64_t>::max()),
      copies_(traits.read ? traits.read(stage) : ReadMode::kInPlace, axis_order(stage), context_),
      tiers_(traits.tiers
                 ? std::make_unique<Tiers>(traits.tiers->settings(stage), context_, segment_units_, pool_)
                 : nullptr),
      pool_(shape_of(traits, stage, context), axis_order(stage), context_) {}

void Placement::open(int sequence) {
  if (static_cast<size_t>(sequence) >= lists_.size()) lists_.resize(static_cast<size_t>(sequence) + 1);
  lists_[sequence].resize(static_cast<size_t>(context_.layers));
  try {
    for (int layer = 0; layer < context_.layers; ++layer) {
      const int64_t most = context_.most_units(layer);
      if (traits_.pool) {
        SegmentNumbers table(CountingAllocator<int32_t>(context_.memory, ByteKind::kMetadata));
        table.reserve(segments_of(most));
        list(sequence, layer).segments = std::move(table);
      }
      const Growth all{.sequence = sequence, .first = 0, .used = 0, .units = most};
      if (!is_segmented() && !traits_.capacity) grow(layer, {&all, 1});
    }
  } catch (...) {
    close(sequence);
    throw;
  }
}

void Placement::close(int sequence) {
  copies_.close(sequence);
  for (SegmentList& of : lists_[sequence]) {
    cut(of, 0);
    of.segments = SegmentNumbers();
  }
}

void Placement::fork(int from, int to, const std::vector<int64_t>& units) {
  for (int layer = 0; layer < context_.layers; ++layer) {
    const SegmentNumbers& parent = list(from, layer).segments;
    SegmentNumbers& child = list(to, layer).segments;
    if (is_segmented()) {
      child.insert(child.end(), parent.begin(), parent.end());
      for (const int32_t segment : child) pool_.add_owner(segment);
      continue;
    }
    const Growth copy{.sequence = to, .first = 0, .used = 0, .units = units[layer]};
    grow(layer, {&copy, 1});
    if (units[layer] > 0)
      pool_.rows(child.front()).copy_from(*context_.memory, pool_.rows(parent.front()), units[layer]);
  }
}

// A list whose one segment grows is done before the next, so that no more than one is there twice.
void Placement::reserve(int layer, std::span<const Growth> growths) {
  if (tiers_) {
    tiers_->begin_growth();
    for (const Growth& g : growths) {
      settle(g.sequence, layer, g.used);
      tiers_->add_growth(list(g.sequence, layer).segments, g);
    }
    tiers_->reserve_disk();
  }
  if (is_segmented()) return grow(layer, growths);
  for (const Growth& g : growths) grow(layer, {&g, 1});
}

int64_t Placement::capacity(int layer, int64_t units) const {
  if (is_segmented()) return segment_units_;
  return traits_.capacity ? traits_.capacity(stage_, units) : context_.most_units(layer);
}

// All segments are there before anything changes.
void Placement::grow(int layer, std::span<const Growth> growths) {
  needs_.clear();
  try {
    for (const Growth& g : growths) find_needs(layer, g);
    if (needs_.empty()) return;
    pool_.make_room(std::ssize(needs_), capacity(layer, growths.front().units));
  } catch (const std::bad_alloc&) {
    for (const Need& n : needs_)
      if (n.was_shared) pool_.add_owner(n.list->segments[n.entry]);
    throw;
  }
  for (const Need& n : needs_) give_segment(n);
}

// Gives up the share of a segment that others hold too: where all of them write in one call, the last keeps it. A pool's
// blocks are copied whole.
void Placement::find_needs(int layer, const Growth& g) {
  SegmentList& of = list(g.sequence, layer);
  const size_t end = segments_of(g.units), room = of.segments.capacity();
  if (end > room) of.segments.reserve(std::max(end, 2 * room));
  for (auto i = static_cast<size_t>(g.first / segment_units_); i < end; ++i) {
    const bool exists = i < of.segments.size();
    const bool shared = exists && pool_.is_shared(of.segments[i]);
    if (exists && !shared && (is_segmented() || g.units <= pool_.rows(of.segments[i]).capacity)) continue;
    const int64_t begin = is_segmented() ? static_cast<int64_t>(i) * segment_units_ : 0;
    needs_.push_back(
        {&of, i, traits_.pool ? segment_units_ : std::min(segment_units_, g.used - begin), shared});
    if (shared) pool_.drop_owner(of.segments[i]);
  }
}

void Placement::give_segment(const Need& n) {
  SegmentNumbers& segments = n.list->segments;
  const int32_t fresh = pool_.take();
  if (n.entry == segments.size()) return segments.push_back(fresh);
  const int32_t before = std::exchange(segments[n.entry], fresh);
  pool_.rows(fresh).copy_from(*context_.memory, pool_.rows(before), n.used);
  if (!n.was_shared) pool_.drop_owner(before);
  ++n.list->moves;
}

void Placement::trim(int sequence, int layer, int64_t units) {
  if (!is_segmented() && !traits_.capacity) return;
  SegmentList& of = list(sequence, layer);
  cut(of, segments_of(units));
  if (is_segmented() || of.segments.empty()) return;
  const int64_t wanted = capacity(layer, units);
  if (wanted >= pool_.rows(of.segments.front()).capacity) return;
  try {
    pool_.make_room(1, wanted);
    give_segment({&of, 0, units, false});
  } catch (const std::bad_alloc&) {
  }
}

// The last first, so that a sequential pool hands them out again in their order.
void Placement::cut(SegmentList& of, size_t segments) {
  for (; of.segments.size() > segments; ++of.moves) {
    pool_.drop_owner(of.segments.back());
    of.segments.pop_back();
  }
}

std::function<void()> Placement::prepare_truncation(int sequence, int layer, int64_t units) {
  if (!tiers_) return [=, this] { trim(sequence, layer, units); };
  const SegmentNumbers& now = list(sequence, layer).segments;
  const auto end = now.begin() + static_cast<int64_t>(segments_of(units));
  return [this, sequence, layer, kept = tiers_->brought_back({now.begin(), end}, units)] {
    SegmentList& of = list(sequence, layer);
    for (const int32_t segment : kept->segments()) pool_.add_owner(segment);
    cut(of, 0);
    of.segments.assign(kept->segments().begin(), kept->segments().end());
  };
}

int64_t Placement::compact() {
  const std::vector<std::pair<int32_t, int32_t>> moved = pool_.compact();
  const std::unordered_map<int32_t, int32_t> to(moved.begin(), moved.end());
  for (std::vector<SegmentList>& layers : lists_) {
    for (SegmentList& of : layers) {
      for (int32_t& segment : of.segments) {
        const auto at = to.find(segment);
        if (at == to.end()) continue;
        segment = at->second;
        ++of.moves;
      }
    }
  }
  return moved.empty() ? 0 : std::ssize(moved) * planes_bytes(context_, segment_units_);
}

SharedBlock Placement::hold(int sequence, int64_t block) {
  std::vector<int32_t> column;
  for (int layer = 0; layer < context_.layers; ++layer)
    column.push_back(list(sequence, layer).segments[static_cast<size_t>(block)]);
  return std::make_shared<SegmentPool::Held>(pool_, std::move(column));
}

void Placement::adopt(int sequence, std::span<const SharedBlock> blocks) {
  for (const SharedBlock& block : blocks) {
    const std::vector<int32_t>& column = static_cast<const SegmentPool::Held*>(block.get())->segments();
    for (int layer = 0; layer < context_.layers; ++layer) {
      list(sequence, layer).segments.push_back(column[static_cast<size_t>(layer)]);
      pool_.add_owner(column[static_cast<size_t>(layer)]);
    }
  }
}

void Placement::settle(int sequence, int layer, int64_t units) {
  if (tiers_->settle(list(sequence, layer).segments, units)) ++shared_moves_;
}

void Placement::view(int sequence, int layer, int64_t units) {
  if (tiers_) settle(sequence, layer, units);
  if (!copies_.on()) return;
  SegmentList& of = list(sequence, layer);
  const SegmentRows& copy = copies_.renew(sequence, layer, units);
  for (int64_t done = 0, next; done < units; done = next) {
    next = done + std::min(segment_units_, units - done);
    copy.copy_from(*context_.memory, pool_.rows(of.segments[static_cast<size_t>(done / segment_units_)]),
                   next - done, done);
  }
  ++of.moves;
}

void Placement::spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) {
  const HeadTables tables = context_.tables_of(layer, head / repeats());
  if (copies_.on()) return copies_.of(sequence, layer).spans(head, tables, from, rows, out);
  const SegmentNumbers& segments = list(sequence, layer).segments;
  if (!is_segmented()) {
    if (from < rows) pool_.rows(segments.front()).spans(head, tables, from, rows, out);
    return;
  }
  const int64_t each = segment_units_ * context_.unit.rows;
  from = std::max(from, streamed_units(sequence, layer) * context_.unit.rows);
  out.reserve(out.size() + static_cast<size_t>((std::max(from, rows) - from + each - 1) / each));
  while (from < rows) {
    const int64_t number = from / each, begin = number * each;
    pool_.rows(segments[static_cast<size_t>(number)])
        .spans(head, tables, from - begin, std::min(each, rows - begin), out);
    from = begin + each;
  }
}

int64_t Placement::streamed_units(int sequence, int layer) const {
  return tiers_ ? tiers_->streamed(list(sequence, layer).segments) * segment_units_ : 0;
}

void Placement::stream(int layer, std::span<const int> sequences, const PieceVisitor& visit,
                       const OtherWork& meanwhile, const PieceRange& range) {
  if (!tiers_) return;
  std::vector<Tiers::Streamed> pieces;
  int64_t count = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SegmentNumbers& segments = list(sequences[i], layer).segments;
    for (int64_t s = 0, end = tiers_->streamed(segments); s < end; ++s)
      if (range.has(count++)) pieces.push_back({i, s * segment_units_, segments[static_cast<size_t>(s)]});
  }
  tiers_->stream(pieces, visit, meanwhile);
}

}  // namespace kv
