// The sensitivity experiment: what a format in one layer's K or V alone does to a model's predictions, everything else in f32.
#pragma once

#include <span>

#include "harness/choose/solver.h"
#include "harness/results/row.h"

namespace kv::experiments {

// The KL divergence of each codec in each layer and side alone, from cells of the experiment.
choose::LayerLosses layer_losses(std::span<const results::Row> cells);

}  // namespace kv::experiments
