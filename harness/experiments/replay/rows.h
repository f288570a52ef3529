// A replay as a row of results.
#pragma once

#include "harness/experiments/serving_rows.h"

namespace kv::experiments {

// Sets facts about the requests before any is served.
void set_facts(results::Row& row, const planner::TraceFacts& facts);
// Sets the clock's times and the measured share of them.
void set_times(results::Row& row, const planner::ReplayResult& result);

}  // namespace kv::experiments
