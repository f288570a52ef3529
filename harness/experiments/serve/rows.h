// Served runs as a row of results.
#pragma once

#include <span>

#include "harness/experiments/serve/serving.h"
#include "harness/results/row.h"

namespace kv::experiments {

// Sets counts of the first run, and times of all: a median over the runs, with its interval.
void set_served(results::Row& row, std::span<const ServedRun> runs, const planner::RowAllocator& rows);
// Sets the times of a replay on a clock fitted to all steps, beside those that set_served() has set, and whether replays of the
// steps' own times count as the runs did.
void set_replayed(results::Row& row, const ServingSetup& setup, std::span<const ServedRequest> requests,
                  std::span<const ServedRun> runs);

}  // namespace kv::experiments
