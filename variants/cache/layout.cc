// The facts about a cache that placements are told.
#include "variants/cache/layout.h"

#include <stdexcept>

namespace kv {
namespace {

void check_geometry(const Codebooks& books, const CacheShape& shape) {
  const int last = shape.model_layers.empty() ? shape.layers - 1 : shape.model_layers.back();
  if (last < books.layers && shape.kv_heads == books.kv_heads && shape.head_dim == books.head_dim) return;
  throw std::invalid_argument("vq's codebooks are of " + books.of() + ", not of " + std::to_string(last + 1) +
                              " layers of " + std::to_string(shape.kv_heads) + " heads of " +
                              std::to_string(shape.head_dim));
}

}  // namespace

Codec codec_for(const Spec& spec, const CacheShape& shape) {
  Codec codec = codec_of(spec).make(spec.codec);
  if (shape.is_latent()) codec.v = codec.k;
  for (const auto& books : {codec.k_books, codec.v_books}) {
    if (books) check_geometry(*books, shape);
  }
  codec.layers = shape.model_layers;
  return codec;
}

PlacementContext placement_context(const Spec& spec, const CacheShape& shape, const Codec& codec,
                                   Memory* memory) {
  const UnitLayout unit = unit_layout(codec, shape);
  const RetentionEntry& retention = retention_of(spec);
  const auto units = [&](int head, int heads) {
    const int64_t slots =
        retention.slots(spec.retention, {shape.max_tokens, shape.max_tokens, 0, head, heads, codec.units()});
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
  for (int i = 0; codec.learned() && i < shape.layers * shape.kv_heads; ++i)
    context.tables.push_back(codec.tables(i / shape.kv_heads, i % shape.kv_heads));
  if (!retention.ragged) return context;
  for (int head = 0; head < shape.kv_heads; ++head) context.head_units.push_back(units(head, shape.kv_heads));
  context.layers *= shape.kv_heads;
  context.heads = 1;
  return context;
}

}  // namespace kv
