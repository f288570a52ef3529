// tiered: the newest rows in fast memory, older ones in a second pool, the oldest in a file.
//
// Rows lie in chunks of `chunk` rows, a multiple of the length of attention's partial results. A chunk moves as a whole,
// once all its rows are older than the newest `hot` (to the second pool: on a GPU, pinned host memory; here, other host
// memory) or the newest `hot + warm` (to the file). Attention takes the file's chunks one after the other while the next
// ones are being read (read_ahead.h), and rows in memory when none has come; all are whole splits, so the output has the
// bits of every other placement. A GPU's kernels get the second pool's chunks in the same way: they pass through the GPU's
// memory, and the next layer's first chunks come while a layer's last are computed.
//
// Reads are real. `io=buffered` goes through the page cache, which may hold the file; `io=direct` bypasses it, so the two
// arms separate the page cache from the disk. `link_gbps` slows reads to a stated rate, as of a link or another disk. Disk
// for a chunk is reserved before the append that needs it, so a full disk refuses the append and loses nothing. Retentions
// that evict are refused: their slots are not in order of age.
//
// A tier may have a codec of its own: a chunk that moves there is then decoded and re-encoded, once (tier_levels.h). Forks
// keep sharing chunks that are moved as they are; a re-encoded chunk becomes the copy of the sequence that moved it. The
// longest sharer decides a chunk's tier. Prefixes are shared only if no tier re-encodes: a sequence that computed the rows
// would have other bits.
//
// Hot and warm chunks are payload; the file is counted apart, as disk. Chunks that are read ahead are workspace.
#include <algorithm>
#include <functional>
#include <set>

#include "kernels/attention.h"
#include "variants/list.h"
#include "variants/placement/chunks.h"
#include "variants/placement/page_reads.h"
#include "variants/placement/read_ahead.h"
#include "variants/placement/slot_layout.h"
#include "variants/placement/spill_file.h"
#include "variants/placement/tier_levels.h"

namespace kv::placement {
namespace {

TierSettings settings_of(const Stage& stage) {
  return {.hot_rows = stage.integer("hot"),
          .warm_rows = stage.integer("warm"),
          .piece_rows = stage.integer("chunk"),
          .folder = SpillFile::folder(stage.text("dir")),
          .direct_io = stage.text("io") == "direct",
          .link_gbps = static_cast<double>(stage.hundredths("link_gbps")) / 100.0};
}

// The first chunks of a layer: those outside the fast memory, and those of them in the file.
struct Borders {
  int64_t cold, not_hot;
  Borders(const Stage& stage, int64_t rows)
      : cold(std::max<int64_t>(0, rows - stage.integer("hot") - stage.integer("warm")) /
             stage.integer("chunk")),
        not_hot(std::max<int64_t>(0, rows - stage.integer("hot")) / stage.integer("chunk")) {}
};

int64_t slot_bytes(const Stage& stage, const TierLevels& levels) {
  return SpillFile::aligned(planes_bytes(levels[2], stage.integer("chunk") / levels[2].unit.rows));
}

class Tiered : public ChunksPlacement, private Tiers {
 public:
  Tiered(const Stage& stage, const PlacementContext& context)
      : ChunksPlacement(context, stage.integer("chunk")),
        stage_(stage),
        levels_(stage, context),
        file_(std::make_shared<SpillFile>(*context.memory, settings_of(stage).folder,
                                          settings_of(stage).direct_io, slot_bytes(stage, levels_),
                                          settings_of(stage).link_gbps)),
        slot_(levels_[2], chunk_units()),
        reader_(*context.memory, *file_),
        pages_(*context.memory, *file_, slot_) {}

  void reserve(int layer, std::span<const Growth> growths) override {
    int64_t slots = 0;
    std::set<const TierChunk*> moving;
    for (const Growth& g : growths) {
      settle(g.sequence, layer, g.used);
      const ChunkList& chunks = list(g.sequence, layer);
      const int64_t cold = Borders(stage_, g.units * unit().rows).cold;
      for (int64_t c = Borders(stage_, g.used * unit().rows).cold; c < cold; ++c) {
        const TierChunk* of = c < std::ssize(chunks) ? &tier_of(*chunks[c]) : nullptr;
        // A shared chunk moves once, and a fork may have moved it; one that is encoded anew is so for each owner.
        slots += !of || (of->slot < 0 && (levels_.differ(of->level, 2) || moving.insert(of).second));
      }
    }
    file_->prepare(slots);
    ChunksPlacement::reserve(layer, growths);
  }

  Tiers* tiers() override { return this; }

  void view(int sequence, int layer, int64_t units) override { settle(sequence, layer, units); }

  // The id may be another sequence's by the time that its rows are asked for.
  void close(int sequence) override {
    ChunksPlacement::close(sequence);
    note_move();
  }

  // Chunks that are now among the newest come back to where those lie; so does a shared one that is now filled in
  // part, since other owners may move theirs on, and only whole chunks can be.
  std::function<void()> prepare_truncation(int sequence, int layer, int64_t units) override {
    const Borders borders(stage_, units * unit().rows);
    ChunkList kept = list(sequence, layer);
    kept.resize(static_cast<size_t>((units + chunk_units() - 1) / chunk_units()));
    for (int64_t c = borders.cold; c < std::ssize(kept); ++c) {
      const TierChunk& chunk = tier_of(*kept[c]);
      const bool warm = c < borders.not_hot;
      const bool partial = (c + 1) * chunk_units() > units;
      const bool too_far = chunk.slot >= 0 || (chunk.warm && !warm);
      if (too_far || (partial && kept[c].use_count() > 2)) kept[c] = brought_back(chunk, warm);
    }
    return [this, sequence, layer, kept = std::move(kept)] {
      list(sequence, layer) = kept;
      note_move();
    };
  }
  // Rows that were encoded anew are not what they were.
  bool can_truncate(int sequence, int layer, int64_t units) const override {
    const Borders borders(stage_, units * unit().rows);
    const ChunkList& chunks = list(sequence, layer);
    for (int64_t c = borders.cold; c * chunk_units() < units; ++c) {
      const int wanted = c < borders.not_hot ? 1 : 0;
      if (levels_.differ(wanted, tier_of(*chunks[c]).level)) return false;
    }
    return true;
  }

  const UnitLayout* own_layout(int sequence, int layer, int64_t unit) const override {
    const int level = tier_of(*list(sequence, layer)[unit / chunk_units()]).level;
    return level == 0 ? nullptr : &levels_[level].unit;
  }

  int64_t streamed_units(int sequence, int layer) const override {
    int64_t streamed = 0;
    for (const auto& chunk : list(sequence, layer)) {
      if (!is_streamed(tier_of(*chunk))) break;
      ++streamed;
    }
    return streamed * chunk_units();
  }

  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override {
    const int64_t first = std::max(from, streamed_units(sequence, layer) * unit().rows);
    ChunksPlacement::spans(sequence, layer, head, first, rows, out);
  }

  void stream(int layer, std::span<const int> sequences, const PieceVisitor& visit,
              const OtherWork& meanwhile, const PieceRange& range) override {
    struct Streamed {
      size_t index;
      int64_t unit;
      const TierChunk& chunk;
    };
    std::vector<Streamed> pieces;
    std::vector<int64_t> slots;
    int64_t count = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (int64_t unit = 0; unit < streamed_units(sequences[i], layer); unit += chunk_units()) {
        if (!range.has(count++)) continue;
        pieces.push_back({i, unit, chunk_at(sequences[i], layer, unit)});
        if (pieces.back().chunk.slot >= 0) slots.push_back(pieces.back().chunk.slot);
      }
    }
    ReadAhead::Run reads(reader_, slots);
    int held = 0;  // a piece of the file is held until the next visit returns
    for (const auto& [index, unit, chunk] : pieces) {
      if (chunk.slot < 0) {
        visit(index, piece(unit, chunk.level, chunk.planes));
      } else {
        while (meanwhile && !reads.is_there() && meanwhile()) {
        }
        visit(index, piece(unit, reads.next()));
      }
      for (; held > 0; --held) reads.give_back();
      held += chunk.slot >= 0;
    }
  }

  void fetch(int layer, std::span<const PieceRows> wanted, std::vector<Span>& out) override {
    pages_.read(
        wanted, [&](const PieceRows& rows) { return chunk_at(rows.sequence, layer, rows.begin).slot; }, out);
  }

 private:
  struct TierChunk : Chunk {
    explicit TierChunk(std::shared_ptr<SpillFile> f) : file(std::move(f)) {}
    ~TierChunk() override {
      if (slot >= 0) file->give_back(slot);
    }
    std::shared_ptr<SpillFile> file;
    bool warm = false;
    int level = 0;      // how its rows are stored
    int64_t slot = -1;  // in the file; the planes are empty then
  };

  std::shared_ptr<Chunk> make_chunk() override { return std::make_shared<TierChunk>(file_); }
  // Rows that are restored come as they were saved.
  void make_room(Chunk& chunk, int64_t index, const Growth& growth) override {
    if (growth.restored > 0) {
      const Borders borders(stage_, growth.restored * unit().rows);
      tier_of(chunk).level = index < borders.cold ? 2 : index < borders.not_hot ? 1 : 0;
    }
    chunk.planes = make_planes(levels_[tier_of(chunk).level], Tier::kHot);
  }
  // No kernels read the file, and a GPU's not the second pool.
  bool is_streamed(const TierChunk& chunk) const {
    return chunk.slot >= 0 || (chunk.warm && !context().memory->is_read_in_place(Tier::kWarm));
  }
  const TierChunk& chunk_at(int sequence, int layer, int64_t unit) const {
    return tier_of(*list(sequence, layer)[static_cast<size_t>(unit / chunk_units())]);
  }
  static TierChunk& tier_of(Chunk& chunk) { return static_cast<TierChunk&>(chunk); }
  const UnitLayout& unit() const { return context().unit; }

  // Moves chunks that have become too old for their place. Backwards, and only as far as there are any, so
  // that a step costs no more when there are many.
  void settle(int sequence, int layer, int64_t units) {
    ChunkList& chunks = list(sequence, layer);
    const Borders borders(stage_, units * unit().rows);
    int64_t first = borders.not_hot;
    while (first > 0 && !is_settled(tier_of(*chunks[first - 1]), first - 1 < borders.cold)) --first;
    first = std::min(first, borders.cold);
    while (first > 0 && !is_settled(tier_of(*chunks[first - 1]), true)) --first;
    for (int64_t c = first; c < borders.not_hot; ++c) {
      if (is_settled(tier_of(*chunks[c]), c < borders.cold)) continue;
      const int level = c < borders.cold ? 2 : 1;
      // A shared chunk is re-encoded into a copy: for a fork it may not be as old.
      const bool copies = chunks[c].use_count() > 1 && levels_.differ(tier_of(*chunks[c]).level, level);
      const std::shared_ptr<Chunk> to = copies ? make_chunk() : chunks[c];
      level == 2 ? to_file(tier_of(*chunks[c]), tier_of(*to)) : to_warm(tier_of(*chunks[c]), tier_of(*to));
      chunks[c] = to;
      note_move();
    }
  }
  static bool is_settled(const TierChunk& chunk, bool cold) {
    return chunk.slot >= 0 || (!cold && chunk.warm);
  }

  void to_warm(const TierChunk& from, TierChunk& to) {
    const int level = std::max(1, from.level);
    Planes warm = make_planes(levels_[level], Tier::kWarm);
    if (levels_.differ(from.level, level)) {
#pragma omp parallel for
      for (int head = 0; head < context().heads; ++head)
        levels_.encode(from.level, from.planes.at(head, 0), level, warm.at(head, 0), chunk_units());
    } else {
      warm.copy_from(from.planes, chunk_units());
    }
    to.planes = std::move(warm);
    to.warm = true;
    to.level = level;
  }

  // If anything fails, the chunk stays where it is.
  void to_file(const TierChunk& from, TierChunk& to) {
    fill_buffer(from);
    const int64_t slot = file_->take();
    try {
      file_->write(slot, reader_.idle_buffer());
    } catch (...) {
      file_->give_back(slot);
      throw;
    }
    to.slot = slot;
    to.level = 2;
    to.planes = Planes();
  }

  // The chunk as a slot has it.
  void fill_buffer(const TierChunk& from) {
    std::vector<UnitAddress> out;
    for (int head = 0; head < context().heads; ++head) out.push_back({slot_.at(reader_.idle_buffer(), head)});
    if (levels_.differ(from.level, 2)) {
#pragma omp parallel for
      for (int head = 0; head < context().heads; ++head)
        levels_.encode(from.level, from.planes.at(head, 0), 2, out[static_cast<size_t>(head)], chunk_units());
      return;
    }
    for (int head = 0; head < context().heads; ++head)
      copy_head(from.planes.at(head, 0).plane, out[static_cast<size_t>(head)]);
  }

  void copy_head(const auto& from, const UnitAddress& to) const {
    for (int p = 0; p < kPlanes; ++p) {
      const int64_t bytes = slot_.plane_bytes(p);
      if (bytes > 0) context().memory->copy(to.plane[p], from[p], static_cast<size_t>(bytes));
    }
  }

  // A copy in memory, of rows that are stored alike there.
  std::shared_ptr<Chunk> brought_back(const TierChunk& chunk, bool warm) {
    auto copy = std::make_shared<TierChunk>(file_);
    copy->warm = warm;
    copy->level = warm ? 1 : 0;
    copy->planes = make_planes(levels_[copy->level], warm ? Tier::kWarm : Tier::kHot);
    if (chunk.slot < 0) {
      copy->planes.copy_from(chunk.planes, chunk_units());
      return copy;
    }
    ReadAhead::Run reads(reader_, {&chunk.slot, 1});
    const std::byte* from = reads.next();
    for (int head = 0; head < context().heads; ++head)
      copy_head(slot_.at(from, head), copy->planes.at(head, 0));
    return copy;
  }

  Piece piece(int64_t first_unit, const std::byte* slot) const {
    Piece piece = empty_piece(first_unit, 2);
    piece.base = slot_.at(slot, 0);
    piece.one_block = true;
    return piece;
  }

  Piece piece(int64_t first_unit, int level, const Planes& planes) const {
    Piece piece = empty_piece(first_unit, level);
    std::ranges::copy(planes.at(0, 0).plane, piece.base.begin());
    return piece;
  }

  Piece empty_piece(int64_t first_unit, int level) const {
    Piece piece{.first_unit = first_unit,
                .units = chunk_units(),
                .unit = &levels_[level].unit,
                .base = {},
                .head_stride = {}};
    for (int p = 0; p < kPlanes; ++p) piece.head_stride[p] = piece.unit->bytes[p] * chunk_units();
    return piece;
  }

  const Stage stage_;
  const TierLevels levels_;
  std::shared_ptr<SpillFile> file_;  // shared with the chunks that lie in it
  const SlotLayout slot_;
  ReadAhead reader_;
  PageReads pages_;
};

OuterTiers layer_tiers(const Stage& stage, const PlacementContext& context, int64_t used) {
  const TierLevels levels(stage, context);
  const Borders borders(stage, used * context.unit.rows);
  const int64_t chunk_units = stage.integer("chunk") / context.unit.rows,
                warm = borders.not_hot - borders.cold;
  return {.warm_units = warm * chunk_units,
          .disk_units = borders.cold * chunk_units,
          .warm_bytes = warm * planes_bytes(levels[1], chunk_units),
          .disk_bytes = borders.cold * slot_bytes(stage, levels)};
}
int64_t tiered_layer_bytes(const Stage& stage, const PlacementContext& context, int64_t used) {
  const OuterTiers outer = layer_tiers(stage, context, used);
  return ChunksPlacement::bytes(context, stage.integer("chunk"), used - outer.warm_units - outer.disk_units) +
         outer.warm_bytes;
}

constexpr TierTraits kTraits{
    .settings = settings_of, .layer_tiers = layer_tiers, .codecs = TierLevels::codecs};

std::string tiered_refuses(const Stage& stage, const Codec& codec, const RetentionEntry& retention) {
  if (!retention.keeps_all) {
    return "retention '" + std::string(retention.name) +
           "' puts a new token's row where a dropped one's was, and a tier is chosen by age: new rows would "
           "lie in the file";
  }
  if (axis_order(stage) == AxisOrder::kRowMajor)
    return "pieces of a file are read head by head, so a head's rows have to lie side by side: layout=bhsd";
  if (stage.integer("chunk") % kSplitRows != 0) {
    return "attention takes a file's rows in pieces of " + std::to_string(kSplitRows) +
           ", so chunk has to be a multiple of that, not " + stage.text("chunk");
  }
  const std::string straddles = group_straddles("a chunk", stage.integer("chunk"), codec.unit_rows());
  if (!straddles.empty()) return straddles;
  if (const std::string reason = TierLevels::refuses(stage, codec); !reason.empty()) return reason;
  return SpillFile::refuses(settings_of(stage).folder, settings_of(stage).direct_io);
}

}  // namespace

const PlacementEntry tiered{
    {.name = "tiered",
     .help = "newest rows in fast memory, older ones in a second pool, the oldest in a file",
     .source = "FlexGen (arXiv:2303.06865), LMCache",
     .parameters = {Parameter::integer("hot", "16384", 1, 1 << 30, {1}, "newest rows kept in fast memory"),
                    Parameter::integer("warm", "65536", 0, 1 << 30, {}, "older rows kept in the second pool"),
                    Parameter::text("dir", "", "folder of the file; empty: $TMPDIR, else /tmp"),
                    Parameter::choice("io", {"buffered", "direct"}, "through the page cache, or past it"),
                    Parameter::integer("chunk", "512", 512, 65536, {1024},
                                       "rows that move together, and of one request"),
                    Parameter::decimal("link_gbps", "0", 0, 1000000, {5000},
                                       "slow the file's reads to this many GB/s; 0: do not"),
                    TierLevels::parameter("warm_codec", "how warm rows are stored; same: as hot ones"),
                    TierLevels::parameter("disk_codec",
                                          "how rows in the file are stored; same: as warm ones"),
                    layout_parameter()}},
    {.make = make_placement<Tiered>,
     .layer_bytes = tiered_layer_bytes,
     .refuses = tiered_refuses,
     .tiers = &kTraits,
     .shares_blocks = true}};

}  // namespace kv::placement
