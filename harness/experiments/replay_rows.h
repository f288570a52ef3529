// A replay as rows of results.
#pragma once

#include <vector>

#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/side_results.h"

namespace kv::experiments {

// What is known of the requests before any is served.
void set_facts(results::CellResult& row, const planner::TraceFacts& facts);
// What the allocators have counted.
void set_counts(results::CellResult& row, const planner::ReplayResult& result,
                const planner::RowAllocator& rows);
// What follows from the clock, and which part of it was measured.
void set_times(results::CellResult& row, const planner::ReplayResult& result);
// Over time, for replay.csv; after set_times().
std::vector<results::MomentResult> moment_rows(const results::CellResult& row,
                                               const planner::Timeline& timeline);

}  // namespace kv::experiments
