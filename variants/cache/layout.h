// What a codec's rows look like to a placement.
#pragma once

#include "variants/cache/cache.h"
#include "variants/core/codec.h"
#include "variants/core/placement.h"

namespace kv {

UnitLayout unit_layout(const Codec& codec, int head_dim);

// `max_slots`: the most rows of one sequence. `memory` may be null where nothing will be stored.
PlacementContext placement_context(const CacheShape& shape, const UnitLayout& unit, int64_t max_slots,
                                   Memory* memory);

}  // namespace kv
