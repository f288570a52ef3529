#include "harness/measure/stage_columns.h"

#include "harness/io/text.h"

namespace kv::measure {

void set_peer_codec(results::CellResult& row, const LayerSpecs& stored, const ModelShape* shape) {
  row.codec = stored.fallback.stages().codec;
  if (shape) row.bits_per_value = bits_per_value(stored, *shape);
}

void set_stages(results::CellResult& row, const LayerSpecs& specs, const ModelShape* shape) {
  set_peer_codec(row, specs, shape);
  const StageTexts stages = specs.fallback.stages();
  row.placement = io::as_utf8(stages.placement);  // may hold a path
  row.retention = stages.retention;
  row.selection = stages.selection;
  row.layer_specs = io::as_utf8(specs.print_exceptions());
}

}  // namespace kv::measure
