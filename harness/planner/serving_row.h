// A row of results of requests that were served, on a simulated clock or in truth: plans and experiments write it here.
#pragma once

#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"

namespace kv::planner {

// Sets lengths of the requests and the time in which they come.
void set_requests(results::Row& row, const TraceFacts& facts);
// The same, and for a replay what else is known before it.
void set_facts(results::Row& row, const TraceFacts& facts);

// Sets the allocators' counts.
void set_counts(results::Row& row, const ReplayResult& result, const RowAllocator& rows);
// Sets the clock's times and percentiles of the requests', with intervals over their clusters.
void set_times(results::Row& row, const ReplayResult& result);

// Sets counts and times of a replay, the clock's sources and the curve's hit rate. False, and nothing is set, where no request
// fits, even alone.
bool set_replay(results::Row& row, const ReplayResult& result, const RowAllocator& rows,
                const TraceFacts& facts);

}  // namespace kv::planner
