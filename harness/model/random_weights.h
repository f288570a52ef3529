// Weights that nobody trained, at the geometry of a model: a step takes as long with them, since its time does not
// depend on their values.
#pragma once

#include <cstdint>

#include "harness/config/geometry.h"
#include "harness/model/weights.h"

namespace kv::model {

// A model of Llama's layers at this geometry, with the weights that its config.json states; the same for the same seed.
// Layers of gated DeltaNet are as linear_rows.h has them. Norms are 1 and there are no biases. `type` is kBf16 or kF32.
// Throws std::invalid_argument: what read_weight_shapes refuses, and with both numbers if they take more than `memory_bytes`,
// before anything is allocated.
ModelWeights random_weights(const config::Geometry& geometry, WeightMatrix::Type type, uint64_t seed,
                            int64_t memory_bytes);

}  // namespace kv::model
