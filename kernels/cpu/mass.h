// The probabilities that attention gave its rows, from the scores that it kept.
#pragma once

#include <cstdint>

#include "kernels/math.h"

namespace kv {

// mass[row] += exp(scores[row] - state.max) / state.sum, for `rows` rows.
void add_mass(const float* scores, const SoftmaxState& state, int64_t rows, float* mass);

}  // namespace kv
