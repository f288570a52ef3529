// The requests of a sweep point, a trace's or drawn ones, and the axes and keys that say them.
#pragma once

#include <cstdint>
#include <string>

#include "harness/config/axes.h"
#include "harness/config/key.h"
#include "harness/experiments/serving_columns.h"
#include "harness/measure/sweep_point.h"
#include "harness/planner/trace_facts.h"

namespace kv::experiments {

// The requests' file, empty for drawn ones. A row has its name as `workload`.
inline constexpr results::TextColumn kTraceFile{"trace", "", "file of the requests"};

extern const config::Axis<std::string> kTraceAxis, kArrivalsAxis;
extern const config::Key<std::string> kPromptLengthsKey, kOutputLengthsKey;
extern const config::Key<int64_t> kPrefixKey, kRequestsKey, kMaxRunningKey, kShareKey;
extern const config::Key<double> kWatermarkKey;

// Opens the point's requests, each time from the first. `drawn`: how many are drawn if the config does not say.
planner::OpenRequests requests_of(const measure::SweepPoint& point, int64_t drawn);

}  // namespace kv::experiments
