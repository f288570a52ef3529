// The columns that name a cache's stages, so that a chart parses no spec.
#pragma once

#include "harness/results/cell_columns.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::measure {

// Sets the stages and exceptions by layer of these specs, and with a shape their bits per value. Cells without a
// cache leave these columns empty.
void set_stages(results::Row& row, const LayerSpecs& specs, const ModelShape* shape);
// Sets another engine's codec: that of kvlab's cache with the same bits.
void set_peer_codec(results::Row& row, const LayerSpecs& stored, const ModelShape* shape);

}  // namespace kv::measure
