// contiguous: every sequence reserves room for the most tokens at once, [B,H,S,D] or [B,S,H,D]. Appends never
// move anything; what is not yet used is slack.
#include "variants/list.h"
#include "variants/placement/read_copies.h"

namespace kv::placement {

const PlacementEntry contiguous{
    {.name = "contiguous",
     .help = "pre-allocated for the most tokens; appends write in place",
     .source = "[B,H,S,D] static cache",
     .parameters = {layout_parameter(), ReadCopies::parameter({"view", "repeat"})}},
    {.layer_bytes = [](const Stage&, const PlacementContext& context,
                       int64_t) { return planes_bytes(context, context.max_units); },
     .read = ReadCopies::mode,
     .grain_rows = [](const Stage&) { return int64_t{1}; }}};

}  // namespace kv::placement
