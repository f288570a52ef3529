// Requests that were served as rows of results.
#pragma once

#include <vector>

#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"

namespace kv::experiments {

// Sets facts about the requests before any is served.
void set_requests(results::Row& row, const planner::TraceFacts& facts);
// Sets the allocators' counts.
void set_counts(results::Row& row, const planner::ReplayResult& result, const planner::RowAllocator& rows);
// Rows over time for replay.csv; the row has its times.
std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline);

}  // namespace kv::experiments
