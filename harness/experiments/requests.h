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
planner::OpenRequests requests_of(const measure::SweepPoint& point, int64_t drawn);

}  // namespace kv::experiments
