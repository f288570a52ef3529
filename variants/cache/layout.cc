// Sizes of a unit's planes, from the formats' own sizes.
#include "variants/cache/layout.h"

#include "kernels/format/encoding.h"

namespace kv {

Codec codec_for(const Spec& spec, const CacheShape& shape) {
  Codec codec = codec_of(spec).make(spec.codec);
  if (shape.is_latent()) codec.v = codec.k;
  return codec;
}

UnitLayout unit_layout(const Codec& codec, const CacheShape& shape) {
  const int head_dim = shape.head_dim;
  UnitLayout unit{.rows = codec.unit_rows(), .bytes = {}, .k = codec.k, .v = codec.v, .stride = {}};
  unit.stride = {unit_data_bytes(codec.k, head_dim), unit_meta_bytes(codec.k, head_dim),
                 unit_data_bytes(codec.v, head_dim), unit_meta_bytes(codec.v, head_dim)};
  for (int p = 0; p < kPlanes; ++p) {
    const Encoding& side = p == kKData || p == kKMeta ? codec.k : codec.v;
    unit.bytes[p] = unit.stride[p] * (unit.rows / side.group);
  }
  if (shape.is_latent())
    unit.bytes[kVData] = unit.bytes[kVMeta] = unit.stride[kVData] = unit.stride[kVMeta] = 0;
  return unit;
}

PlacementContext placement_context(const CacheShape& shape, const UnitLayout& unit, int64_t max_slots,
                                   Memory* memory) {
  return {memory, shape.layers, shape.kv_heads, (max_slots + unit.rows - 1) / unit.rows, shape.max_sequences,
          unit,   shape.group()};
}

}  // namespace kv
