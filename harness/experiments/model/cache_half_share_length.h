// The context at which the cache takes half of a whole model's step.
#pragma once

#include <string>

#include "harness/experiments/cell_text.h"

namespace kv::experiments {

// One line, or empty if no model was timed: "The cache takes half of a step: contiguous/f16, batch 1 from about 21000
// tokens; …". Between two measured contexts the share is interpolated linearly in the logarithm of the context.
std::string cache_half_share_length(std::span<const results::Row* const> cells);

}  // namespace kv::experiments
