// The probabilities that attention gave its rows, from the weights that it kept.
#pragma once

#include <cstdint>

#include "kernels/math.h"

namespace kv::cpu {

// out[i] = exp(scores[i] - state.max) / state.sum. `out` may be `scores`.
void probabilities(const float* scores, const SoftmaxState& state, int64_t count, float* out);

// sums[row] += weights[row] * factors[row / kTileRows], for `rows` rows.
void add_weights(const float* weights, const float* factors, int64_t rows, float* sums);

}  // namespace kv::cpu
