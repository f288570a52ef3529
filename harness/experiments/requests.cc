#include "harness/experiments/requests.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "harness/config/config.h"
#include "harness/config/request_lengths.h"
#include "harness/io/paths.h"
#include "harness/math/random.h"

namespace kv::experiments {
namespace {

using config::SharedTable;
constexpr int64_t kIdTokens = 16;  // for drawn requests with a prefix, if nothing is shared

planner::Arrivals arrivals_of(const measure::SweepPoint& point) {
  if (point.axes[kArrivals] != "trace") return planner::parse_arrivals(point.axes[kArrivals]);
  if (point.axes[kTraceFile].empty()) throw std::invalid_argument("arrivals \"trace\" needs a trace");
  return {};
}

LimitConfig read_limit(config::Section& section, const std::string& key, const LimitConfig& fallback) {
  config::Section limit = section.section(key);
  const LimitConfig read{.ttft_s = limit.number("ttft_s", fallback.ttft_s, 0.0, 1e9),
                         .tpot_ms = limit.number("tpot_ms", fallback.tpot_ms, 0.0, 1e9)};
  limit.refuse_the_rest();
  return read;
}

}  // namespace

const config::Axis<std::string> kTraceAxis{
    kTraceFile,          "trace",
    SharedTable::kOwn,   {""},
    config::text_list(), "files of requests; none: requests are drawn"};
const config::Axis<std::string> kArrivalsAxis{
    kArrivals, "arrivals",          SharedTable::kOwn,
    {""},      config::text_list(), "\"poisson(2)\", \"gamma(2,1.5)\"; none: the trace's own"};
const config::Key<std::string> kPromptLengthsKey{"prompt", SharedTable::kOwn, "zipf(64,8192)",
                                                 config::text(config::check_lengths),
                                                 "tokens of drawn prompts"};
const config::Key<std::string> kOutputLengthsKey{"output", SharedTable::kOwn, "zipf(16,1024)",
                                                 config::text(config::check_lengths),
                                                 "tokens of drawn answers"};
const config::Key<int64_t> kPrefixKey{"prefix", SharedTable::kOwn, 0, config::tokens(0, config::kMaxTokens),
                                      "common first tokens of all drawn prompts, before `prompt`"};
const config::Key<int64_t> kRequestsKey{"requests", SharedTable::kOwn, 0, config::count(1, 1000000000),
                                        "requests served; 0: the trace's, or 2000 drawn ones"};
const config::Key<int64_t> kMaxRunningKey{"max_running", SharedTable::kOwn, 256, config::count(1, 65536),
                                          "sequences that run at once at most"};
const config::Key<int64_t> kShareKey{"share", SharedTable::kOwn, 0, config::tokens(0, config::kMaxTokens),
                                     "tokens of a shared block of prefixes; 0: nothing is shared"};
const config::Key<double> kWatermarkKey{"watermark", SharedTable::kOwn, 0.01, config::number(0.0, 1.0),
                                        "share of the pool's blocks that admission leaves free"};
const config::Key<LimitConfig> kLimitKey{
    "limit", SharedTable::kOwn, {}, read_limit, "limits of a good request"};

planner::OpenRequests requests_of(const measure::SweepPoint& point, int64_t drawn) {
  const config::Settings& r = point.experiment->settings;
  const planner::Arrivals arrivals = arrivals_of(point);
  const uint64_t seed = point.config->seed;
  if (!point.axes[kTraceFile].empty()) {
    const std::string path = io::find_input(point.axes[kTraceFile], "trace").string();
    return [=, most = r[kRequestsKey]] { return planner::RequestSource(path, arrivals, most, seed); };
  }
  const int64_t requests = r[kRequestsKey] > 0 ? r[kRequestsKey] : drawn;
  constexpr uint64_t kOutput = 0x6f7574707574;  // "output"
  const auto sequences = static_cast<int>(std::min<int64_t>(requests, 1 << 20));
  const auto lengths = std::make_shared<const planner::DrawnLengths>(planner::DrawnLengths{
      .prompt = config::draw_lengths(r[kPromptLengthsKey], sequences, seed),
      .output = config::draw_lengths(r[kOutputLengthsKey], sequences, math::random::key({seed, kOutput})),
      .prefix = r[kPrefixKey],
      .id_tokens = r[kPrefixKey] == 0 ? 0
                   : r[kShareKey] > 0 ? r[kShareKey]
                                      : kIdTokens});
  return [=] { return planner::RequestSource(lengths, arrivals, requests, seed); };
}

void set_arrivals(measure::SweepPoint& point) {
  if (point.axes[kArrivals].empty())
    point.axes[kArrivals] = point.axes[kTraceFile].empty() ? "poisson(1)" : "trace";
}

void set_limits(const measure::SweepPoint& point, results::Row& row) {
  const LimitConfig& limit = point.experiment->settings[kLimitKey];
  row[kLimitTtftS] = limit.ttft_s;
  row[kLimitTpotMs] = limit.tpot_ms;
}

planner::SchedulerSettings with_limits(const measure::SweepPoint& point,
                                       planner::SchedulerSettings settings) {
  const config::Settings& s = point.experiment->settings;
  settings.max_running = static_cast<int>(s[kMaxRunningKey]);
  settings.watermark = s[kWatermarkKey];
  settings.limit_ttft_s = s[kLimitKey].ttft_s;
  settings.limit_tpot_s = s[kLimitKey].tpot_ms / 1e3;
  return settings;
}

std::vector<results::Row> moment_rows(const results::Row& row, const planner::Timeline& timeline) {
  std::vector<results::Row> rows;
  double end = 0.0;
  for (const planner::Moment& moment : timeline.bins()) {
    results::Row& m = rows.emplace_back(results::row_of(row));
    end += timeline.bin_s();
    m[kTimeS] = std::min(end, *row[kServedS]);
    m[kRunning] = moment.running;
    m[kWaiting] = moment.waiting;
    m[kPayloadBytes] = moment.payload_bytes;
    m[kSlackBytes] = moment.slack_bytes;
    m[kOtherBytes] = moment.other_bytes;
    m[kCachedBytes] = moment.cached_bytes;
  }
  return rows;
}

}  // namespace kv::experiments
