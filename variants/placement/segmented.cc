// segmented: a list of chunks of `rows` rows. A full chunk is never copied or moved again: growth only
// appends a chunk, and forks share chunks. This is the indirection along the sequence axis that tract's
// maintainer sketched as the alternative to one fused buffer. The slack of a sequence is less than one chunk
// a layer. `read=copy` gathers the chunks into one buffer before every read: his fallback for consumers that
// want "the actual tensor".
#include <algorithm>

#include "variants/list.h"
#include "variants/placement/chunks.h"

namespace kv::placement {
namespace {

class Segmented : public ChunksPlacement {
 public:
  Segmented(const Stage& stage, const PlacementContext& context)
      : ChunksPlacement(context, stage.integer("rows"), axis_order(stage)), copies_(stage, context) {}

  void close(int sequence) override {
    copies_.close(sequence);
    ChunksPlacement::close(sequence);
  }

  void view(int sequence, int layer, int64_t units) override {
    if (!copies_.on()) return;
    Planes& gathered = copies_.renew(sequence, layer, units);
    int64_t at = 0;
    for (const auto& chunk : list(sequence, layer)) {
      gathered.copy_from(chunk->planes, std::min(chunk_units(), units - at), at);
      at += chunk_units();
      if (at >= units) break;
    }
    note_move();
  }

  int repeats() const override { return copies_.repeats(); }

  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override {
    if (!copies_.on()) return ChunksPlacement::spans(sequence, layer, head, from, rows, out);
    copies_.of(sequence, layer).spans(head, from, rows, out);
  }

 private:
  ReadCopies copies_;
};

}  // namespace

const PlacementEntry segmented{
    {.name = "segmented",
     .help = "a list of chunks that are never moved; forks share them",
     .source = "",
     .parameters = {Parameter::integer("rows", "256", 1, 65536, {1, 32}, "rows of a chunk"),
                    ReadCopies::parameter({"view", "copy", "repeat"}), layout_parameter()}},
    {.make = make_placement<Segmented>,
     .layer_bytes = [](const Stage& stage, const PlacementContext& context,
                       int64_t used) { return ChunksPlacement::bytes(context, stage.integer("rows"), used); },
     .refuses =
         [](const Stage& stage, const Codec& codec, const RetentionEntry&) {
           return group_straddles("a chunk", stage.integer("rows"), codec.unit_rows());
         },
     .read = ReadCopies::mode,
     .shares_blocks = true,
     .grain_rows = [](const Stage& stage) { return stage.integer("rows"); }}};

}  // namespace kv::placement
