// A replay as rows of results.
#pragma once

#include <vector>

#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"

namespace kv::experiments {

// Sets facts about the requests before any is served.
void set_facts(results::Row& row, const planner::TraceFacts& facts);
// Sets the allocators' counts.
void set_counts(results::Row& row, const planner::ReplayResult& result, const planner::RowAllocator& rows);
// Sets the clock's times and the measured share of them.
void set_times(results::Row& row, const planner::ReplayResult& result);
// Rows over time for replay.csv; call after set_times().
std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline);

}  // namespace kv::experiments
