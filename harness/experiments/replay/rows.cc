#include "harness/experiments/replay/rows.h"

#include <algorithm>

#include "harness/experiments/replay/columns.h"
#include "harness/math/clusters.h"
#include "harness/math/stats.h"

namespace kv::experiments {

using results::Row;

namespace {

void set_percentile(results::Row& row, const results::Estimate& of, const std::vector<double>& values,
                    const math::Clusters& clusters, double p, double unit) {
  if (values.empty()) return;
  const math::ConfidenceInterval interval = clusters.percentile_interval(values, p);
  row.set(of, unit * math::percentile(values, p),
          math::ConfidenceInterval{unit * interval.low, unit * interval.high});
}

}  // namespace

void set_facts(results::Row& row, const planner::TraceFacts& facts) {
  set_requests(row, facts);
  row[kClusters] = facts.sessions ? "sessions" : "minutes";
  if (facts.hits.empty()) return;
  const planner::HitRates& hits = facts.hits.front();
  const auto blocks = static_cast<double>(hits.blocks());
  row[kDistinctShare] = static_cast<double>(hits.distinct()) / blocks;
  row[kHitRateAtAny] = static_cast<double>(hits.hits_at_any()) / blocks;
}

void set_times(results::Row& row, const planner::ReplayResult& r) {
  row[kTimesFrom] = r.times.from();
  row[kClockBeyondShare] = r.times.computed / r.times.all();
  row[kClockAssumedShare] = r.times.assumed / r.times.all();
  row[kServedS] = r.seconds;
  row[kServedTokensPerS] = static_cast<double>(r.generated_tokens) / r.seconds;
  const math::Clusters served(r.cluster), further(r.tpot_cluster), all(r.good_cluster);
  row[kClusterCount] = all.count();
  set_percentile(row, kWaitP99S, r.wait_s, served, 99, 1);
  set_percentile(row, kTtftP50S, r.ttft_s, served, 50, 1);
  set_percentile(row, kTtftP99S, r.ttft_s, served, 99, 1);
  set_percentile(row, kTpotP50Ms, r.tpot_s, further, 50, 1e3);
  set_percentile(row, kTpotP99Ms, r.tpot_s, further, 99, 1e3);
  double good = 0.0;
  for (const double one : r.good) good += one;
  const double rate = static_cast<double>(r.requests) / r.seconds;
  const math::ConfidenceInterval share = all.mean_interval(r.good);
  row.set(kGoodShare, good / static_cast<double>(r.requests), share);
  row.set(kGoodputPerS, rate * *row[kGoodShare],
          math::ConfidenceInterval{rate * share.low, rate * share.high});
}

}  // namespace kv::experiments
