// What placements are told of a cache.
#include "variants/cache/layout.h"

namespace kv {

Codec codec_for(const Spec& spec, const CacheShape& shape) {
  Codec codec = codec_of(spec).make(spec.codec);
  if (shape.is_latent()) codec.v = codec.k;
  return codec;
}

PlacementContext placement_context(const CacheShape& shape, const UnitLayout& unit, int64_t max_slots,
                                   Memory* memory) {
  return {.memory = memory,
          .layers = shape.layers,
          .heads = shape.kv_heads,
          .max_units = (max_slots + unit.rows - 1) / unit.rows,
          .max_sequences = shape.max_sequences,
          .unit = unit,
          .head_dim = shape.head_dim,
          .group = shape.group(),
          .latent = shape.is_latent()};
}

}  // namespace kv
