#include "harness/planner/serving_row.h"

#include <numeric>

#include "harness/math/clusters.h"
#include "harness/math/stats.h"
#include "harness/planner/serving_columns.h"

namespace kv::planner {
namespace {

// Sets a percentile of requests' times, with its interval over their clusters.
void set_percentile(results::Row& row, const results::Estimate& column, const std::vector<double>& times,
                    const std::vector<int64_t>& clusters, double p, double unit) {
  if (times.empty()) return;
  const math::ConfidenceInterval of = math::Clusters(clusters).percentile_interval(times, p);
  row.set(column, unit * math::percentile(times, p), math::ConfidenceInterval{unit * of.low, unit * of.high});
}

int64_t tokens_at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

}  // namespace

void set_requests(results::Row& row, const TraceFacts& facts) {
  row[kRequests] = facts.requests;
  row[kTraceS] = facts.seconds;
  row[kPromptP50Tokens] = tokens_at(facts.prompt, 50);
  row[kPromptP99Tokens] = tokens_at(facts.prompt, 99);
  row[kOutputP50Tokens] = tokens_at(facts.output, 50);
  row[kOutputP99Tokens] = tokens_at(facts.output, 99);
}

void set_facts(results::Row& row, const TraceFacts& facts) {
  set_requests(row, facts);
  row[kClusters] = facts.sessions ? "sessions" : "minutes";
  if (facts.hits.empty()) return;
  const HitRates& hits = facts.hits.front();
  row[kDistinctShare] = hits.share(hits.distinct());
  row[kHitRateAtAny] = hits.share(hits.hits_at_any());
}

void set_counts(results::Row& row, const ReplayResult& r, const RowAllocator& rows) {
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
}

void set_times(results::Row& row, const ReplayResult& r) {
  row[kTimesFrom] = r.times.from();
  row[kServedS] = r.seconds;
  row[kServedTokensPerS] = static_cast<double>(r.generated_tokens) / r.seconds;
  set_percentile(row, kWaitP99S, r.wait_s, r.cluster, 99, 1);
  set_percentile(row, kTtftP50S, r.ttft_s, r.cluster, 50, 1);
  set_percentile(row, kTtftP99S, r.ttft_s, r.cluster, 99, 1);
  set_percentile(row, kTpotP50Ms, r.tpot_s, r.tpot_cluster, 50, 1e3);
  set_percentile(row, kTpotP99Ms, r.tpot_s, r.tpot_cluster, 99, 1e3);
  const math::Clusters all(r.good_cluster);
  row[kClusterCount] = all.count();
  const double good = std::reduce(r.good.begin(), r.good.end());
  const double rate = static_cast<double>(r.requests) / r.seconds;
  const math::ConfidenceInterval share = all.mean_interval(r.good);
  row.set(kGoodShare, good / static_cast<double>(r.requests), share);
  row.set(kGoodputPerS, good / r.seconds, math::ConfidenceInterval{rate * share.low, rate * share.high});
}

bool set_replay(results::Row& row, const ReplayResult& r, const RowAllocator& rows, const TraceFacts& facts) {
  if (r.refused == r.requests) return false;
  set_counts(row, r, rows);
  set_times(row, r);
  row[kSwappedTokens] = r.swapped_tokens;
  row[kCountsFrom] = "computed";
  row[kClockBeyondShare] = r.times.computed / r.times.all();
  row[kClockAssumedShare] = r.times.assumed / r.times.all();
  if (facts.hits.empty()) return true;
  const HitRates& hits = facts.hits.front();
  const double blocks =
      static_cast<double>(rows.room_bytes()) / rows.payload_bytes(facts.block_tokens.front());
  row[kHitRateCurve] = hits.share(hits.hits(static_cast<int64_t>(blocks)));
  return true;
}

}  // namespace kv::planner
