#include "harness/experiments/serve/rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/experiments/serve/columns.h"
#include "harness/experiments/serving_rows.h"
#include "harness/math/medians.h"

namespace kv::experiments {
namespace {

using planner::ReplayResult;

// A value of each run: its median, and the interval where the column has one.
void set_median(results::Row& row, const auto& column, std::span<const ServedRun> runs, const auto& of) {
  std::vector<double> values;
  for (const ServedRun& run : runs) values.push_back(of(run));
  row[column] = math::median(values);
  if constexpr (requires { column.high; }) {
    if (std::ranges::min(values) <= 0.0) return;  // goodput of a repetition in which no request was good
    row.set(column, row[column], math::median_interval(values));
  }
}

double percentile_of(const std::vector<double>& values, double p, double unit) {
  return values.empty() ? 0.0 : unit * math::percentile(values, p);
}
auto ttft(double p) {
  return [p](const ServedRun& run) { return percentile_of(run.result.ttft_s, p, 1.0); };
}
auto tpot(double p) {
  return [p](const ServedRun& run) { return percentile_of(run.result.tpot_s, p, 1e3); };
}
double hit_rate(const ReplayResult& r) {
  return static_cast<double>(r.found_tokens) / static_cast<double>(r.prompt_tokens);
}
double stepping_s(const ServedRun& run) {
  double seconds = 0.0;
  for (const planner::ServedClock::Step& step : run.steps) seconds += step.seconds;
  return seconds;
}

}  // namespace

void set_served(results::Row& row, std::span<const ServedRun> runs, const planner::RowAllocator& rows) {
  const ServedRun& first = runs.front();
  const ReplayResult& r = first.result;
  set_counts(row, r, rows);
  row[kRepetitions] = std::ssize(runs);
  row[kTimesFrom] = "measured";
  row[kRunningMean] = r.mean.running;
  row[kHeldMeanBytes] = r.mean.payload_bytes + r.mean.slack_bytes + r.mean.other_bytes + r.mean.cached_bytes;
  int64_t tokens = 0;
  for (const planner::ServedClock::Step& step : first.steps) tokens += step.work.tokens;
  row[kPaddingShare] = static_cast<double>(first.padding_tokens) / static_cast<double>(tokens);
  set_median(row, kServedS, runs, [](const ServedRun& run) { return run.result.seconds; });
  set_median(row, kRequestsPerS, runs, [](const ServedRun& run) {
    return static_cast<double>(run.result.requests - run.result.refused) / run.result.seconds;
  });
  set_median(row, kGoodputPerS, runs, [](const ServedRun& run) {
    return std::reduce(run.result.good.begin(), run.result.good.end()) / run.result.seconds;
  });
  set_median(row, kServedTokensPerS, runs, [](const ServedRun& run) {
    return static_cast<double>(run.result.generated_tokens) / run.result.seconds;
  });
  set_median(row, kTtftP50S, runs, ttft(50));
  set_median(row, kTtftP90S, runs, ttft(90));
  set_median(row, kTtftP99S, runs, ttft(99));
  set_median(row, kTpotP50Ms, runs, tpot(50));
  set_median(row, kTpotP90Ms, runs, tpot(90));
  set_median(row, kTpotP99Ms, runs, tpot(99));
  set_median(row, kProjectionsTimeShare, runs,
             [](const ServedRun& run) { return run.projections_s / stepping_s(run); });
  set_median(row, kAttentionTimeShare, runs,
             [](const ServedRun& run) { return run.attention_s / stepping_s(run); });
  set_median(row, kSchedulingTimeShare, runs,
             [](const ServedRun& run) { return 1.0 - run.model_s / stepping_s(run); });
}

void set_replayed(results::Row& row, const ServingSetup& setup, std::span<const ServedRequest> requests,
                  std::span<const ServedRun> runs) {
  std::vector<planner::ServedClock::Step> steps;
  for (const ServedRun& run : runs) steps.insert(steps.end(), run.steps.begin(), run.steps.end());
  const auto clock = planner::ServedClock::fitted(steps);
  clock.write(row);
  row[kClockResidual] = clock.residual(steps);
  const ReplayResult r = replay_served(setup, requests, clock);
  row[kReplayTtftP50S] = percentile_of(r.ttft_s, 50, 1.0);
  row[kReplayTtftP99S] = percentile_of(r.ttft_s, 99, 1.0);
  row[kReplayTpotP50Ms] = percentile_of(r.tpot_s, 50, 1e3);
  row[kReplayTpotP99Ms] = percentile_of(r.tpot_s, 99, 1e3);
  row[kReplayServedS] = r.seconds;
  row[kReplayPreemptions] = r.preemptions;
  if (setup.scheduler.share_tokens > 0) row[kReplayHitRate] = hit_rate(r);
  std::vector<double> errors;
  using Replayed = std::pair<const results::NumberColumn*, const results::NumberColumn*>;
  for (const auto& [replayed, served] : {Replayed{&kReplayTtftP50S, &kTtftP50S},
                                         {&kReplayTtftP99S, &kTtftP99S},
                                         {&kReplayTpotP50Ms, &kTpotP50Ms},
                                         {&kReplayTpotP99Ms, &kTpotP99Ms},
                                         {&kReplayServedS, &kServedS}}) {
    if (*row[*served] > 0.0) errors.push_back(std::abs(*row[*replayed] / *row[*served] - 1.0));
  }
  row[kReplayErrorP50] = math::median(errors);
  row[kReplayErrorMax] = *std::max_element(errors.begin(), errors.end());

  const bool equal = std::all_of(runs.begin(), runs.end(), [&](const ServedRun& run) {
    size_t step = 0;
    const ReplayResult again =
        replay_served(setup, requests, [&](const planner::StepPlan&, const planner::StepWork&) {
          return planner::StepSeconds{.measured = run.steps[std::min(step++, run.steps.size() - 1)].seconds};
        });
    return again.steps == run.result.steps && again.preemptions == run.result.preemptions &&
           again.recomputed_tokens == run.result.recomputed_tokens &&
           again.found_tokens == run.result.found_tokens &&
           again.peak_held_bytes == run.result.peak_held_bytes && again.ttft_s == run.result.ttft_s &&
           again.tpot_s == run.result.tpot_s;
  });
  row[kReplayCounts] = equal ? "equal" : "different";
}

}  // namespace kv::experiments
