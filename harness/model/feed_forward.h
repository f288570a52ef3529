// The part of a layer after attention: a gated or plain feed-forward, or a mixture of experts.
#pragma once

#include "harness/model/model.h"
#include "harness/model/weights.h"

namespace kv::model {

// An empty bias is none.
void add_bias(const std::vector<float>& bias, Matrix& y);
// x Wᵀ + bias, [n, in] to [n, out].
Matrix project(const Matrix& x, const WeightMatrix& weights, const std::vector<float>& bias);

// x [n, dim] to [n, dim].
Matrix feed_forward(const Matrix& x, const LayerWeights& layer, const ModelConfig& config);

}  // namespace kv::model
