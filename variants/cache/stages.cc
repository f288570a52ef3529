// Makes the stages of a spec in the order in which one needs the other.
#include "variants/cache/stages.h"

#include "variants/cache/cache.h"
#include "variants/cache/compatibility.h"
#include "variants/cache/layout.h"

namespace kv {

Stages::Stages(const Spec& s, const CacheShape& of, Memory& where)
    : spec(s),
      shape(of),
      memory(where),
      retention(retention_of(spec)),
      selection(selection_of(spec)),
      codec(codec_for(spec, shape)),
      unit(unit_layout(codec, shape)),
      ring(retention.ring ? retention.ring(spec.retention, shape.max_tokens, codec.units())
                          : UnitRing(codec.units())) {
  codec.require_codebooks();
  placement = placement_of(spec).make(placement_of(spec), spec.placement,
                                      placement_context(spec, shape, codec, &memory));
  if (rotates_at_read(spec)) rotated.emplace(shape.rope, shape.head_dim, memory);
  if (codec.rotates()) hadamard.emplace(shape, codec, memory);
  storage = make_storage(
      {memory, codec, unit, shape.kv_heads, shape.head_dim, *placement, rotated ? &*rotated : nullptr});
}

}  // namespace kv
