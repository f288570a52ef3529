// Weights that nobody trained, at the geometry of a model: a step takes as long with them, since its time does not
// depend on their values.
#pragma once

#include <cstdint>

#include "harness/config/geometry.h"
#include "harness/model/weights.h"

namespace kv::model {

// A model at this geometry, with the weights that its config.json states; the same for the same seed. One of a family of
// family.h has all of that family's, experts, sinks and soft-capping included. Any other has Llama's layers, without
// biases, and layers of gated DeltaNet as linear_rows.h has them. Norms are 1, biases and sinks 0. `type` is kBf16 or kF32.
// Throws std::invalid_argument: what read_hugging_face_config or read_weight_shapes refuses, and with both numbers if they
// take more than `memory_bytes`, before anything is allocated.
ModelWeights random_weights(const config::Geometry& geometry, WeightMatrix::Type type, uint64_t seed,
                            int64_t memory_bytes);

}  // namespace kv::model
