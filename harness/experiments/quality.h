// The quality experiment: what a cache does to a model's predictions, against the full f32 cache on the same
// tokens: `batch` disjoint windows of `seq_len` tokens of the text, each read from an empty cache.
#pragma once

#include "harness/measure/sweep_point.h"

namespace kv::experiments {

// Throws std::invalid_argument where the model or the text cannot give windows of the point's length.
void check_windows(const measure::SweepPoint& point);

}  // namespace kv::experiments
