#include "harness/experiments/replay_rows.h"

#include <algorithm>

#include "harness/math/clusters.h"
#include "harness/math/stats.h"

namespace kv::experiments {

using results::CellResult;

namespace {

int64_t tokens_at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

// A percentile and its interval.
struct Place {
  results::Number CellResult::*value, CellResult::*low, CellResult::*high;
};

void set_percentile(CellResult& row, const Place& place, const std::vector<double>& values,
                    const math::Clusters& clusters, double p, double unit) {
  if (values.empty()) return;
  row.*place.value = unit * math::percentile(values, p);
  const math::ConfidenceInterval interval = clusters.percentile_interval(values, p);
  row.*place.low = unit * interval.low;
  row.*place.high = unit * interval.high;
}

}  // namespace

void set_facts(CellResult& row, const planner::TraceFacts& facts) {
  row.requests = facts.requests;
  row.trace_s = facts.seconds;
  row.prompt_p50_tokens = tokens_at(facts.prompt, 50);
  row.prompt_p99_tokens = tokens_at(facts.prompt, 99);
  row.output_p50_tokens = tokens_at(facts.output, 50);
  row.output_p99_tokens = tokens_at(facts.output, 99);
  row.clusters = facts.sessions ? "sessions" : "minutes";
  if (facts.hits.empty()) return;
  const planner::HitRates& hits = facts.hits.front();
  const auto blocks = static_cast<double>(hits.blocks());
  row.distinct_share = static_cast<double>(hits.distinct()) / blocks;
  row.hit_rate_at_any = static_cast<double>(hits.hits_at_any()) / blocks;
}

void set_counts(CellResult& row, const planner::ReplayResult& r, const planner::RowAllocator& rows) {
  row.refused = r.refused;
  row.running_p50 = r.running_percentile(50);
  row.running_p99 = r.running_percentile(99);
  row.running_peak = r.peak_running();
  row.waiting_p50 = r.waiting_percentile(50);
  row.waiting_p99 = r.waiting_percentile(99);
  row.waiting_peak = r.peak_waiting();
  if (rows.pool_blocks() > 0) row.pool_blocks = rows.pool_blocks();
  row.held_peak_bytes = r.peak_held_bytes;
  row.payload_mean_bytes = r.mean.payload_bytes;
  row.slack_mean_bytes = r.mean.slack_bytes;
  row.other_mean_bytes = r.mean.other_bytes;
  row.cached_mean_bytes = r.mean.cached_bytes;
  row.fragmentation_share = r.mean.slack_bytes / (r.mean.slack_bytes + r.mean.payload_bytes);
  row.preemptions = r.preemptions;
  row.preemptions_per_1000 = 1e3 * static_cast<double>(r.preemptions) / static_cast<double>(r.requests);
  row.recomputed_tokens = r.recomputed_tokens;
  row.swapped_tokens = r.swapped_tokens;
  row.counts_from = "computed";
}

void set_times(CellResult& row, const planner::ReplayResult& r) {
  using C = CellResult;
  row.times_from = r.times.from();
  row.clock_beyond_share = r.times.computed / r.times.all();
  row.clock_assumed_share = r.times.assumed / r.times.all();
  row.served_s = r.seconds;
  row.served_tokens_per_s = static_cast<double>(r.generated_tokens) / r.seconds;
  const math::Clusters served(r.cluster), further(r.tpot_cluster), all(r.good_cluster);
  row.cluster_count = all.count();
  set_percentile(row, {&C::wait_p99_s, &C::wait_p99_s_ci_low, &C::wait_p99_s_ci_high}, r.wait_s, served, 99,
                 1);
  set_percentile(row, {&C::ttft_p50_s, &C::ttft_p50_s_ci_low, &C::ttft_p50_s_ci_high}, r.ttft_s, served, 50,
                 1);
  set_percentile(row, {&C::ttft_p99_s, &C::ttft_p99_s_ci_low, &C::ttft_p99_s_ci_high}, r.ttft_s, served, 99,
                 1);
  set_percentile(row, {&C::tpot_p50_ms, &C::tpot_p50_ms_ci_low, &C::tpot_p50_ms_ci_high}, r.tpot_s, further,
                 50, 1e3);
  set_percentile(row, {&C::tpot_p99_ms, &C::tpot_p99_ms_ci_low, &C::tpot_p99_ms_ci_high}, r.tpot_s, further,
                 99, 1e3);
  double good = 0.0;
  for (const double one : r.good) good += one;
  const double rate = static_cast<double>(r.requests) / r.seconds;
  const math::ConfidenceInterval share = all.mean_interval(r.good);
  row.good_share = good / static_cast<double>(r.requests);
  row.good_share_ci_low = share.low;
  row.good_share_ci_high = share.high;
  row.goodput_per_s = rate * *row.good_share;
  row.goodput_per_s_ci_low = rate * share.low;
  row.goodput_per_s_ci_high = rate * share.high;
}

std::vector<results::MomentResult> moment_rows(const CellResult& row, const planner::Timeline& timeline) {
  std::vector<results::MomentResult> rows;
  double end = 0.0;
  for (const planner::Moment& moment : timeline.bins()) {
    results::MomentResult& m = rows.emplace_back(row);
    end += timeline.bin_s();
    m.time_s = std::min(end, *row.served_s);
    m.running = moment.running;
    m.waiting = moment.waiting;
    m.payload_bytes = moment.payload_bytes;
    m.slack_bytes = moment.slack_bytes;
    m.other_bytes = moment.other_bytes;
    m.cached_bytes = moment.cached_bytes;
  }
  return rows;
}

}  // namespace kv::experiments
