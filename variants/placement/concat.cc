// concat: every append allocates a buffer that fits exactly and copies all past rows into it, as frameworks
// do that concatenate tensors. A T-token decode copies O(T^2) rows.
#include "variants/list.h"
#include "variants/placement/read_copies.h"

namespace kv::placement {

const PlacementEntry concat{{.name = "concat",
                             .help = "copies all past rows into a new buffer at every append",
                             .source = "tract DynKeyValueCache, Hugging Face DynamicCache",
                             .parameters = {layout_parameter(), ReadCopies::parameter({"view", "repeat"})}},
                            {.capacity = [](const Stage&, int64_t units) { return units; },
                             .layer_bytes = [](const Stage&, const PlacementContext& context,
                                               int64_t used) { return planes_bytes(context, used); },
                             .read = ReadCopies::mode,
                             .grain_rows = [](const Stage&) { return int64_t{1}; }}};

}  // namespace kv::placement
