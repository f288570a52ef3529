// Of a run of whole models: at which context the cache takes half of a step.
#pragma once

#include <string>

#include "harness/experiments/cell_text.h"

namespace kv::experiments {

// One line, "" where no model was timed: "The cache takes half of a step: contiguous/f16, batch 1 from about 21000 tokens;
// …". Between two measured contexts the share is taken as linear in the logarithm of the context.
std::string half_a_step(std::span<const results::Row* const> cells);

}  // namespace kv::experiments
