// A replay as rows of results.
#pragma once

#include <vector>

#include "harness/planner/trace_replay.h"
#include "harness/planner/trace_facts.h"
#include "harness/results/row.h"

namespace kv::experiments {

// What is known of the requests before any is served.
void set_facts(results::Row& row, const planner::TraceFacts& facts);
// What the allocators have counted.
void set_counts(results::Row& row, const planner::ReplayResult& result, const planner::RowAllocator& rows);
// What follows from the clock, and which part of it was measured.
void set_times(results::Row& row, const planner::ReplayResult& result);
// Over time, for replay.csv; after set_times().
std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline);

}  // namespace kv::experiments
