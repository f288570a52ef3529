#include "harness/experiments/serving_rows.h"

#include <algorithm>

#include "harness/experiments/serving_columns.h"
#include "harness/math/stats.h"

namespace kv::experiments {
namespace {

int64_t tokens_at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

}  // namespace

void set_requests(results::Row& row, const planner::TraceFacts& facts) {
  row[kRequests] = facts.requests;
  row[kTraceS] = facts.seconds;
  row[kPromptP50Tokens] = tokens_at(facts.prompt, 50);
  row[kPromptP99Tokens] = tokens_at(facts.prompt, 99);
  row[kOutputP50Tokens] = tokens_at(facts.output, 50);
  row[kOutputP99Tokens] = tokens_at(facts.output, 99);
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
