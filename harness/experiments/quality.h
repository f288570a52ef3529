// The quality experiment: a cache's effect on a model's predictions, compared with the full f32 cache on the same
// tokens. It reads `batch` disjoint windows of `seq_len` tokens of the text, each from an empty cache.
#pragma once

#include "harness/measure/sweep_point.h"

namespace kv::experiments {

// Throws std::invalid_argument if the model or the text cannot provide windows of the point's length.
void check_windows(const measure::SweepPoint& point);

}  // namespace kv::experiments
