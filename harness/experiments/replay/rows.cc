#include "harness/experiments/replay/rows.h"

#include <algorithm>

#include "harness/experiments/replay/columns.h"
#include "harness/math/clusters.h"
#include "harness/math/stats.h"

namespace kv::experiments {

using results::Row;

namespace {

int64_t tokens_at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

// A percentile and its interval.
struct Place {
  results::NumberColumn value, low, high;
};

void set_percentile(results::Row& row, const Place& place, const std::vector<double>& values,
                    const math::Clusters& clusters, double p, double unit) {
  if (values.empty()) return;
  row[place.value] = unit * math::percentile(values, p);
  const math::ConfidenceInterval interval = clusters.percentile_interval(values, p);
  row[place.low] = unit * interval.low;
  row[place.high] = unit * interval.high;
}

}  // namespace

void set_facts(results::Row& row, const planner::TraceFacts& facts) {
  row[kRequests] = facts.requests;
  row[kTraceS] = facts.seconds;
  row[kPromptP50Tokens] = tokens_at(facts.prompt, 50);
  row[kPromptP99Tokens] = tokens_at(facts.prompt, 99);
  row[kOutputP50Tokens] = tokens_at(facts.output, 50);
  row[kOutputP99Tokens] = tokens_at(facts.output, 99);
  row[kClusters] = facts.sessions ? "sessions" : "minutes";
  if (facts.hits.empty()) return;
  const planner::HitRates& hits = facts.hits.front();
  const auto blocks = static_cast<double>(hits.blocks());
  row[kDistinctShare] = static_cast<double>(hits.distinct()) / blocks;
  row[kHitRateAtAny] = static_cast<double>(hits.hits_at_any()) / blocks;
}

void set_counts(results::Row& row, const planner::ReplayResult& r, const planner::RowAllocator& rows) {
  row[kRefused] = r.refused;
  row[kRunningP50] = r.running_percentile(50);
  row[kRunningP99] = r.running_percentile(99);
  row[kRunningPeak] = r.peak_running();
  row[kWaitingP50] = r.waiting_percentile(50);
  row[kWaitingP99] = r.waiting_percentile(99);
  row[kWaitingPeak] = r.peak_waiting();
  if (rows.pool_blocks() > 0) row[kPoolBlocks] = rows.pool_blocks();
  row[kHeldPeakBytes] = r.peak_held_bytes;
  row[kPayloadMeanBytes] = r.mean.payload_bytes;
  row[kSlackMeanBytes] = r.mean.slack_bytes;
  row[kOtherMeanBytes] = r.mean.other_bytes;
  row[kCachedMeanBytes] = r.mean.cached_bytes;
  row[kFragmentationShare] = r.mean.slack_bytes / (r.mean.slack_bytes + r.mean.payload_bytes);
  row[kPreemptions] = r.preemptions;
  row[kPreemptionsPer1000] = 1e3 * static_cast<double>(r.preemptions) / static_cast<double>(r.requests);
  row[kRecomputedTokens] = r.recomputed_tokens;
  row[kSwappedTokens] = r.swapped_tokens;
  row[kCountsFrom] = "computed";
}

void set_times(results::Row& row, const planner::ReplayResult& r) {
  row[kTimesFrom] = r.times.from();
  row[kClockBeyondShare] = r.times.computed / r.times.all();
  row[kClockAssumedShare] = r.times.assumed / r.times.all();
  row[kServedS] = r.seconds;
  row[kServedTokensPerS] = static_cast<double>(r.generated_tokens) / r.seconds;
  const math::Clusters served(r.cluster), further(r.tpot_cluster), all(r.good_cluster);
  row[kClusterCount] = all.count();
  set_percentile(row, {kWaitP99S, kWaitP99SCiLow, kWaitP99SCiHigh}, r.wait_s, served, 99, 1);
  set_percentile(row, {kTtftP50S, kTtftP50SCiLow, kTtftP50SCiHigh}, r.ttft_s, served, 50, 1);
  set_percentile(row, {kTtftP99S, kTtftP99SCiLow, kTtftP99SCiHigh}, r.ttft_s, served, 99, 1);
  set_percentile(row, {kTpotP50Ms, kTpotP50MsCiLow, kTpotP50MsCiHigh}, r.tpot_s, further, 50, 1e3);
  set_percentile(row, {kTpotP99Ms, kTpotP99MsCiLow, kTpotP99MsCiHigh}, r.tpot_s, further, 99, 1e3);
  double good = 0.0;
  for (const double one : r.good) good += one;
  const double rate = static_cast<double>(r.requests) / r.seconds;
  const math::ConfidenceInterval share = all.mean_interval(r.good);
  row[kGoodShare] = good / static_cast<double>(r.requests);
  row[kGoodShareCiLow] = share.low;
  row[kGoodShareCiHigh] = share.high;
  row[kGoodputPerS] = rate * *row[kGoodShare];
  row[kGoodputPerSCiLow] = rate * share.low;
  row[kGoodputPerSCiHigh] = rate * share.high;
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
