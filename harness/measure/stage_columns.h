// The columns that say what a cell's cache is made of: a chart reads them and parses no spec.
#pragma once

#include "harness/results/cell_columns.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::measure {

// A cache of these specs: its stages, its exceptions by layer, and for a shape its bits per value. The rows of a cell
// without a cache keep these columns empty.
void set_stages(results::Row& row, const LayerSpecs& specs, const ModelShape* shape);
// Another engine's cell: the codec alone, that of kvlab's cache of the same bits.
void set_peer_codec(results::Row& row, const LayerSpecs& stored, const ModelShape* shape);

}  // namespace kv::measure
