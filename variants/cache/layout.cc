// The facts about a cache that placements are told.
#include "variants/cache/layout.h"

namespace kv {

Codec codec_for(const Spec& spec, const CacheShape& shape) {
  Codec codec = codec_of(spec).make(spec.codec);
  if (shape.is_latent()) codec.v = codec.k;
  return codec;
}

PlacementContext placement_context(const Spec& spec, const CacheShape& shape, const UnitLayout& unit,
                                   Memory* memory) {
  const RetentionEntry& retention = retention_of(spec);
  const auto units = [&](int head, int heads) {
    const int64_t slots =
        retention.slots(spec.retention, {shape.max_tokens, shape.max_tokens, 0, head, heads});
    return (slots + unit.rows - 1) / unit.rows;
  };
  PlacementContext context{.memory = memory,
                           .layers = shape.layers,
                           .heads = shape.kv_heads,
                           .max_units = units(0, 0),
                           .max_sequences = shape.max_sequences,
                           .unit = unit,
                           .head_dim = shape.head_dim,
                           .group = shape.group(),
                           .latent = shape.is_latent()};
  if (!retention.ragged) return context;
  for (int head = 0; head < shape.kv_heads; ++head) context.head_units.push_back(units(head, shape.kv_heads));
  context.layers *= shape.kv_heads;
  context.heads = 1;
  return context;
}

}  // namespace kv
