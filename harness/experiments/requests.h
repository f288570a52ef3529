// The requests of a sweep point, a trace's or drawn ones, the axes and keys that say them, and rows of results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/axes.h"
#include "harness/config/key.h"
#include "harness/measure/sweep_point.h"
#include "harness/planner/scheduler.h"
#include "harness/planner/serving_columns.h"
#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {

using namespace planner::columns;

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

// replay.csv: one row a stretch of a replay's time. Values are means over the stretch.
inline constexpr results::NumberColumn kTimeS{
    "time_s", "s", "end of the stretch on the replay's clock; the row's values are means over the stretch"};
inline constexpr results::NumberColumn kRunning{"running", "",
                                                "running sequences; empty while there is nothing to do"};
inline constexpr results::NumberColumn kWaiting{"waiting", "", "waiting requests"};
inline constexpr results::NumberColumn kPayloadBytes{"payload_bytes", "bytes", "filled rows"};
inline constexpr results::NumberColumn kSlackBytes{"slack_bytes", "bytes",
                                                   "rows reserved for sequences and not filled"};
inline constexpr results::NumberColumn kOtherBytes{"other_bytes", "bytes",
                                                   "block tables, scores, codecs' raw rows and states"};
inline constexpr results::NumberColumn kCachedBytes{"cached_bytes", "bytes",
                                                    "blocks of prefixes that no sequence uses"};
inline const results::Table kMoments{
    "replay.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &kTimeS, &kRunning, &kWaiting,
     &kPayloadBytes, &kSlackBytes, &kOtherBytes, &kCachedBytes, &results::kHost},
    &kServedS};

// Its rows; the cell's row has its times.
std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline);

}  // namespace kv::experiments
