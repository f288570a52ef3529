// segmented: a list of chunks of `rows` rows. A full chunk is never copied or moved again: growth only
// appends a chunk, and forks share chunks. This is the indirection along the sequence axis that tract's
// maintainer sketched as the alternative to one fused buffer.
//
// A fork shares even the last, partly filled chunk; whichever sequence appends next copies that one first.
// The slack of a sequence is less than one chunk a layer. The lists themselves are a pointer a chunk and are
// not counted.
#include <algorithm>
#include <memory>

#include "variants/list.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

struct ChunkList {
  std::vector<std::shared_ptr<Planes>> chunks;
  int64_t moves = 0;
};

class Segmented : public Placement {
 public:
  Segmented(const Stage& stage, const PlacementContext& context)
      : context_(context), chunk_units_(stage.integer("rows") / context.unit.rows) {}

  void open(int sequence) override {
    if (static_cast<size_t>(sequence) >= lists_.size()) lists_.resize(static_cast<size_t>(sequence) + 1);
    lists_[sequence].resize(static_cast<size_t>(context_.layers));
  }
  void close(int sequence) override { lists_[sequence].clear(); }

  void fork(int from, int to, const std::vector<int64_t>&) override {
    for (int layer = 0; layer < context_.layers; ++layer) list(to, layer).chunks = list(from, layer).chunks;
  }

  void reserve(int layer, std::span<const Growth> growths) override {
    std::vector<NewChunk> fresh;  // all are made before anything changes
    for (const Growth& g : growths) {
      ChunkList& l = list(g.sequence, layer);
      for (int64_t c = g.first / chunk_units_; c * chunk_units_ < g.units; ++c) {
        const bool exists = c < std::ssize(l.chunks);
        if (exists && l.chunks[c].use_count() == 1) continue;
        const int64_t used = exists ? std::min(chunk_units_, g.used - c * chunk_units_) : 0;
        fresh.push_back({&l, c, used, make_chunk()});
      }
      l.chunks.reserve(static_cast<size_t>((g.units + chunk_units_ - 1) / chunk_units_));
    }
    for (NewChunk& n : fresh) put(n);
  }

  void trim(int sequence, int layer, int64_t, int64_t units) override {
    ChunkList& l = list(sequence, layer);
    const auto chunks = static_cast<size_t>((units + chunk_units_ - 1) / chunk_units_);
    if (chunks >= l.chunks.size()) return;
    l.chunks.resize(chunks);
    ++l.moves;
  }

  UnitAddress at(int sequence, int layer, int head, int64_t unit) override {
    return list(sequence, layer).chunks[unit / chunk_units_]->at(head, unit % chunk_units_);
  }

  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override {
    const ChunkList& l = list(sequence, layer);
    const int64_t chunk_rows = chunk_units_ * context_.unit.rows;
    for (int64_t row = from; row < rows;) {
      const int64_t first = row % chunk_rows, end = std::min(chunk_rows, first + rows - row);
      l.chunks[row / chunk_rows]->spans(head, first, end, out);
      row += end - first;
    }
  }

  int64_t moves(int sequence, int layer) const override { return lists_[sequence][layer].moves; }

 private:
  struct NewChunk {
    ChunkList* list;
    int64_t index;
    int64_t used;  // units to copy from the shared chunk that it replaces; 0 for a chunk at the end
    std::shared_ptr<Planes> planes;
  };

  static void put(NewChunk& n) {
    auto& chunks = n.list->chunks;
    if (n.index == std::ssize(chunks)) {
      chunks.push_back(std::move(n.planes));
      return;
    }
    n.planes->copy_from(*chunks[n.index], n.used);
    chunks[n.index] = std::move(n.planes);
    ++n.list->moves;
  }

  std::shared_ptr<Planes> make_chunk() const {
    return std::make_shared<Planes>(context_, chunk_units_, ByteKind::kPayload, ByteKind::kMetadata);
  }
  ChunkList& list(int sequence, int layer) { return lists_[sequence][layer]; }

  const PlacementContext context_;
  const int64_t chunk_units_;
  std::vector<std::vector<ChunkList>> lists_;  // [sequence][layer]
};

std::unique_ptr<Placement> make(const Stage& stage, const PlacementContext& context) {
  return std::make_unique<Segmented>(stage, context);
}

int64_t layer_bytes(const Stage& stage, const PlacementContext& context, int64_t used) {
  const int64_t chunk_units = stage.integer("rows") / context.unit.rows;
  return planes_bytes(context, (used + chunk_units - 1) / chunk_units * chunk_units);
}

std::string refuses(const Stage& stage, const Codec& codec, const RetentionEntry&) {
  return group_straddles("a chunk", stage.integer("rows"), codec.unit_rows());
}

}  // namespace

const PlacementEntry segmented{
    {.name = "segmented",
     .help = "a list of chunks that are never moved; forks share them",
     .source = "",
     .parameters = {Parameter::integer("rows", "256", 1, 65536, {1, 32}, "rows of a chunk")}},
    make,
    layer_bytes,
    nullptr,
    refuses};

}  // namespace kv::placement
