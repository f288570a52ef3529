// The requests of a sweep point, a trace's or drawn ones, the axes and keys that say them, and rows of results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/axes.h"
#include "harness/config/key.h"
#include "harness/experiments/serving_columns.h"
#include "harness/measure/sweep_point.h"
#include "harness/planner/scheduler.h"
#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"

namespace kv::experiments {

// The requests' file, empty for drawn ones. A row has its name as `workload`.
inline constexpr results::TextColumn kTraceFile{"trace", "", "file of the requests"};

// A request within both limits is goodput.
struct LimitConfig {
  double ttft_s = 10.0, tpot_ms = 100.0;
};

extern const config::Axis<std::string> kTraceAxis, kArrivalsAxis;
extern const config::Key<std::string> kPromptLengthsKey, kOutputLengthsKey;
extern const config::Key<int64_t> kPrefixKey, kRequestsKey, kMaxRunningKey, kShareKey;
extern const config::Key<double> kWatermarkKey;
extern const config::Key<LimitConfig> kLimitKey;

// Opens the point's requests, each time from the first. `drawn`: how many are drawn if the config does not say.
// Throws std::invalid_argument for requests that cannot be.
planner::OpenRequests requests_of(const measure::SweepPoint& point, int64_t drawn);
// Sets arrivals that the config leaves open: the trace's own, or one a second.
void set_arrivals(measure::SweepPoint& point);
// The config's limits, in the cells' columns and for a scheduler.
void set_limits(const measure::SweepPoint& point, results::Row& row);
planner::SchedulerSettings with_limits(const measure::SweepPoint& point, planner::SchedulerSettings settings);

// Sets facts about the requests before any is served.
void set_requests(results::Row& row, const planner::TraceFacts& facts);
// Sets the allocators' counts.
void set_counts(results::Row& row, const planner::ReplayResult& result, const planner::RowAllocator& rows);
// Rows over time for replay.csv; the row has its times.
std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline);

}  // namespace kv::experiments
