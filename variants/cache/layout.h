// What a codec's rows look like to a placement.
#pragma once

#include "variants/cache/cache.h"
#include "variants/core/codec.h"
#include "variants/core/placement.h"

namespace kv {

// What a spec's codec makes of a geometry's rows: of a latent row (MLA) K alone is stored, and V read from it.
Codec codec_for(const Spec& spec, const CacheShape& shape);
// `codec` is codec_for the shape.
inline UnitLayout unit_layout(const Codec& codec, const CacheShape& shape) {
  return unit_layout(codec, shape.head_dim, shape.is_latent());
}

// Of rows that the spec's retention keeps. `memory` may be null where nothing will be stored.
PlacementContext placement_context(const Spec& spec, const CacheShape& shape, const UnitLayout& unit,
                                   Memory* memory);

}  // namespace kv
