#include "harness/measure/stage_columns.h"

#include "harness/io/text.h"
#include "harness/peers/engines.h"
#include "variants/model_cache/label.h"

namespace kv::measure {

void set_peer_codec(results::Row& row, const LayerSpecs& stored, const ModelShape* shape) {
  row[results::kCodec] = stored.fallback.stages().codec;
  const auto calls = [](const Spec& spec) { return !codec_of(spec).make(spec.codec).function.empty(); };
  if (shape && !stored.any(calls)) row[results::kBitsPerValue] = bits_per_value(stored, *shape);
}

void set_stages(results::Row& row, const LayerSpecs& specs, const ModelShape* shape) {
  set_peer_codec(row, specs, shape);
  const StageTexts stages = specs.fallback.stages();
  row[results::kLabel] = io::as_utf8(label_of(specs));
  row[results::kPlacement] = io::as_utf8(stages.placement);  // may hold a path
  row[results::kRetention] = stages.retention;
  row[results::kSelection] = stages.selection;
  row[results::kOracle] = oracle_of(specs);
  row[results::kEngines] = peers::commands_of(specs);
  row[results::kLayerSpecs] = io::as_utf8(specs.print_exceptions());
}

}  // namespace kv::measure
