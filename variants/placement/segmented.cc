// segmented: a list of chunks of `rows` rows. A full chunk is never copied or moved again: growth only
// appends a chunk, and forks share chunks. This is the indirection along the sequence axis that tract's
// maintainer sketched as the alternative to one fused buffer. The slack of a sequence is less than one chunk
// a layer. `read=copy` gathers the chunks into one buffer before every read: his fallback for consumers that
// want "the actual tensor".
#include "variants/list.h"
#include "variants/placement/read_copies.h"

namespace kv::placement {
namespace {

int64_t chunk_rows(const Stage& stage) { return stage.integer("rows"); }

}  // namespace

const PlacementEntry segmented{
    {.name = "segmented",
     .help = "a list of chunks that are never moved; forks share them",
     .source = "",
     .parameters = {Parameter::integer("rows", "256", 1, 65536, {1, 32}, "rows of a chunk"),
                    ReadCopies::parameter({"view", "copy", "repeat"}), layout_parameter()}},
    {.segment_rows = chunk_rows,
     .layer_bytes = [](const Stage& stage, const PlacementContext& context,
                       int64_t used) { return segments_bytes(context, chunk_rows(stage), used); },
     .refuses =
         [](const Stage& stage, const Codec& codec, const RetentionEntry&) {
           return group_straddles("a chunk", chunk_rows(stage), codec.unit_rows());
         },
     .read = ReadCopies::mode}};

}  // namespace kv::placement
