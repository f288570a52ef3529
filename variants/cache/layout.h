// A codec's rows as a placement sees them.
#pragma once

#include "variants/cache/cache.h"
#include "variants/core/codec.h"
#include "variants/core/placement.h"

namespace kv {

// The spec's codec for a geometry's rows: K alone is stored of a latent row (MLA), and V is read from it. Throws
// std::invalid_argument where the codec has codebooks of another geometry.
Codec codec_for(const Spec& spec, const CacheShape& shape);
// `codec` is codec_for the shape.
inline UnitLayout unit_layout(const Codec& codec, const CacheShape& shape) {
  return unit_layout(codec, shape.head_dim, shape.is_latent());
}

// The context for the rows that the spec's retention keeps. `memory` may be null if nothing will be stored.
PlacementContext placement_context(const Spec& spec, const CacheShape& shape, const Codec& codec,
                                   Memory* memory);

}  // namespace kv
