// segmented: a list of chunks of `rows` rows. A full chunk is never copied or moved again: growth only
// appends a chunk, and forks share chunks. This is the indirection along the sequence axis that tract's
// maintainer sketched as the alternative to one fused buffer. The slack of a sequence is less than one chunk
// a layer.
#include "variants/list.h"
#include "variants/placement/chunks.h"

namespace kv::placement {
namespace {

std::unique_ptr<Placement> make(const Stage& stage, const PlacementContext& context) {
  return std::make_unique<ChunksPlacement>(context, stage.integer("rows"));
}
int64_t layer_bytes(const Stage& stage, const PlacementContext& context, int64_t used) {
  return ChunksPlacement::bytes(context, stage.integer("rows"), used);
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
