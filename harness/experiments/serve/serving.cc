#include "harness/experiments/serve/serving.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "harness/experiments/serve/columns.h"
#include "harness/math/medians.h"
#include "harness/measure/timing.h"
#include "harness/memory/ledger.h"
#include "harness/model/cached_model.h"
#include "harness/model/ragged_model.h"
#include "harness/model/sampling.h"
#include "harness/model/step_parts.h"
#include "harness/planner/serving_row.h"
#include "variants/cache/compatibility.h"

namespace kv::experiments {
namespace {

// The blocks of a pool that the setup's allocator has, so that both are full at the same time.
LayerSpecs with_blocks(const LayerSpecs& spec, int64_t blocks) {
  return spec.is_one() && pool_settings(spec.fallback) ? LayerSpecs(with_pool(spec.fallback, blocks)) : spec;
}

class Serving : public planner::RowsMirror {
 public:
  Serving(const ServingSetup& setup, std::span<const ServedRequest> requests,
          const planner::RowAllocator& rows, double step_s)
      : rows_(rows),
        ledger_(setup.ledger_bytes),
        cache_(build_cache(
            with_blocks(setup.spec, rows.pool_blocks()),
            cache_shape(setup.model->config(), setup.room.max_sequences, setup.room.max_tokens), ledger_)),
        model_(*setup.model, *cache_),
        vocab_(static_cast<size_t>(setup.model->config().vocab_size)),
        step_s_(step_s),
        empty_bytes_(held_bytes()) {
    if (setup.scheduler.share_tokens > 0) prefixes_.emplace(*cache_);
    for (const ServedRequest& one : requests) texts_.push_back(one.prompt);
    prompts_ = texts_;
    sequences_.resize(static_cast<size_t>(setup.room.max_sequences), -1);
    if (rows.allocated_bytes() != empty_bytes_)
      disagree("bytes of no sequence", rows.allocated_bytes(), empty_bytes_);
  }

  void open(const planner::Live& live, int64_t found) override {
    const std::span<const int> text(texts_[at(live.request)]);
    SequenceId& id = sequences_[at(live.sequence)];
    id = prefixes_ ? prefixes_->add_sequence(text.first(at(found))) : cache_->add_sequence();
    if (cache_->tokens(id, 0) != found) disagree("tokens found", found, cache_->tokens(id, 0));
  }
  void share(const planner::Live& live) override {
    prefixes_->share(sequences_[at(live.sequence)], prompts_[at(live.request)]);
  }
  void close(const planner::Live& live) override {
    const SequenceId id = sequences_[at(live.sequence)];
    prefixes_ ? prefixes_->release(id) : cache_->release(id);
  }
  void evict(int64_t units) override { prefixes_->evict(units); }

  planner::StepSeconds step(const planner::StepPlan& plan, const planner::StepWork& work) {
    std::vector<model::RaggedModel::Part> parts;
    for (const planner::StepPlan::Entry& e : plan.entries)
      parts.push_back({sequences_[at(e.sequence)], e.from,
                       std::span<const int>(texts_[at(e.request)]).subspan(at(e.from), at(e.tokens)),
                       e.chooses});
    measure::Stopwatch watch;
    const std::vector<float> logits = model_.step(parts, plan.padding);
    run_.model_s += watch.lap();
    run_.padding_tokens += plan.padding;
    size_t row = 0;
    for (const planner::StepPlan::Entry& e : plan.entries) {
      if (!e.chooses) continue;
      texts_[at(e.request)].push_back(
          model::next_token(std::span(logits).subspan(row++ * vocab_, vocab_), {}, 0, 0));
    }
    check();
    const double seconds = lap_.lap();
    run_.steps.push_back({work, step_s_ > 0.0 ? step_s_ : seconds});
    return {.measured = run_.steps.back().seconds};
  }

  // All requests have ended.
  ServedRun finish(planner::ReplayResult result) {
    if (prefixes_) prefixes_->evict(prefixes_->blocks());
    if (cache_->blocks_in_use() > 0) disagree("blocks at the end", 0, cache_->blocks_in_use());
    if (held_bytes() != empty_bytes_) disagree("bytes at the end", empty_bytes_, held_bytes());
    run_.result = std::move(result);
    run_.kernel = cache_->kernel();
    run_.projections_s = parts_.seconds(model::Part::kProjections);
    run_.attention_s = parts_.seconds(model::Part::kAttend);
    for (size_t i = 0; i < texts_.size(); ++i)
      run_.answers.emplace_back(texts_[i].begin() + std::ssize(prompts_[i]), texts_[i].end());
    return std::move(run_);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  int64_t held_bytes() const { return ledger_.payload().current_bytes + ledger_.metadata().current_bytes; }
  void check() {
    if (cache_->blocks_in_use() != rows_.blocks_in_use())
      disagree("blocks in use", rows_.blocks_in_use(), cache_->blocks_in_use());
    if (held_bytes() != rows_.allocated_bytes()) disagree("bytes", rows_.allocated_bytes(), held_bytes());
  }
  void disagree(const std::string& what, int64_t want, int64_t got) {
    if (run_.failure.empty())
      run_.failure = what + " at step " + std::to_string(run_.steps.size()) + ": live sequences need " +
                     std::to_string(want) + ", the cache has " + std::to_string(got);
  }

  const planner::RowAllocator& rows_;
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  model::RaggedModel model_;
  std::optional<PrefixCache> prefixes_;
  const size_t vocab_;
  const double step_s_;
  ServedRun run_;
  const int64_t empty_bytes_;
  std::vector<std::vector<int>> prompts_, texts_;  // by request; a text is a prompt and the answer so far
  std::vector<SequenceId> sequences_;              // by the scheduler's numbers
  model::StepParts parts_;
  measure::Stopwatch lap_;
};

// With ids by content where blocks are shared.
std::vector<io::Request> to_schedule(const ServingSetup& setup, std::span<const ServedRequest> requests) {
  if (setup.scheduler.share_tokens > 0) return by_content(requests, setup.scheduler.share_tokens);
  std::vector<io::Request> all;
  for (const ServedRequest& one : requests) all.push_back(one.request);
  return all;
}

using planner::ReplayResult;

// A run's times in a row of its own, and shares of them where its steps are ours.
results::Row times_of(const ServedRun& run) {
  const ReplayResult& r = run.result;
  results::Row row;
  planner::set_times(row, r);
  row[kRequestsPerS] = static_cast<double>(r.requests - r.refused) / r.seconds;
  row[kTtftP90S] = math::percentile(r.ttft_s, 90);
  if (!r.tpot_s.empty()) row[kTpotP90Ms] = 1e3 * math::percentile(r.tpot_s, 90);
  if (run.steps.empty()) return row;
  double seconds = 0.0;
  for (const planner::ServedClock::Step& step : run.steps) seconds += step.seconds;
  row[kProjectionsTimeShare] = run.projections_s / seconds;
  row[kAttentionTimeShare] = run.attention_s / seconds;
  row[kSchedulingTimeShare] = 1.0 - run.model_s / seconds;
  return row;
}

}  // namespace

config::Geometry geometry_of(const model::ModelConfig& m) {
  config::Geometry g;
  g.layers = g.model_layers = m.layers;
  g.q_heads = m.q_heads;
  g.kv_heads = m.kv_heads;
  g.head_dim = m.head_dim();
  g.kinds = m.kinds;
  return g;
}

int64_t shared_tokens(const LayerSpecs& spec, const planner::RowAllocator& rows) {
  if (!spec.is_one() || !pool_settings(spec.fallback)) return 0;
  const int64_t tokens = pool_settings(spec.fallback)->block_rows;
  return rows.refuses_sharing(tokens).empty() && unshareable_reason(spec.fallback).empty() ? tokens : 0;
}

ServedRun serve(const ServingSetup& setup, std::span<const ServedRequest> requests,
                const std::function<bool()>& stop, double step_s) {
  planner::RowAllocator rows(geometry_of(setup.model->config()), setup.spec, setup.room);
  const std::vector<io::Request> all = to_schedule(setup, requests);
  Serving serving(setup, requests, rows, step_s);
  return serving.finish(planner::replay(
      planner::in_turn(all, stop), rows,
      [&](const planner::StepPlan& plan, const planner::StepWork& work) { return serving.step(plan, work); },
      setup.scheduler, {}, &serving));
}

planner::ReplayResult replay_served(const ServingSetup& setup, std::span<const ServedRequest> requests,
                                    const planner::StepDriver& driver) {
  planner::RowAllocator rows(geometry_of(setup.model->config()), setup.spec, setup.room);
  const std::vector<io::Request> all = to_schedule(setup, requests);
  return planner::replay(planner::in_turn(all), rows, driver, setup.scheduler);
}

void set_times(results::Row& row, std::span<const ServedRun> runs) {
  std::vector<results::Row> each;
  for (const ServedRun& run : runs) each.push_back(times_of(run));
  row[kServedTimes] = std::ssize(runs);
  row[kTimesFrom] = each.front()[kTimesFrom];
  const auto set_median = [&](const results::NumberColumn& column) {
    std::vector<double> values;
    for (const results::Row& one : each)
      if (one[column]) values.push_back(*one[column]);
    if (!values.empty()) row[column] = math::median(values);
    return values;
  };
  for (const auto* column : {&kServedS, &kTtftP90S, &kTpotP90Ms, &kProjectionsTimeShare, &kAttentionTimeShare,
                             &kSchedulingTimeShare})
    set_median(*column);
  for (const auto* of : {&kRequestsPerS, &kGoodputPerS, &kServedTokensPerS, &kTtftP50S, &kTtftP99S,
                         &kTpotP50Ms, &kTpotP99Ms}) {
    const std::vector<double> values = set_median(*of);
    // Not for the goodput of a repetition in which no request was good.
    if (!values.empty() && std::ranges::min(values) > 0.0)
      row.set(*of, row[*of], math::median_interval(values));
  }
}

void set_served(results::Row& row, std::span<const ServedRun> runs, const planner::RowAllocator& rows) {
  const ServedRun& first = runs.front();
  const ReplayResult& r = first.result;
  planner::set_counts(row, r, rows);
  set_times(row, runs);
  row[kRunningMean] = r.mean.running;
  row[kHeldMeanBytes] = r.mean.payload_bytes + r.mean.slack_bytes + r.mean.other_bytes + r.mean.cached_bytes;
  int64_t tokens = 0;
  for (const planner::ServedClock::Step& step : first.steps) tokens += step.work.tokens;
  row[kPaddingShare] = static_cast<double>(first.padding_tokens) / static_cast<double>(tokens);
}

void set_replayed(results::Row& row, const ServingSetup& setup, std::span<const ServedRequest> requests,
                  std::span<const ServedRun> runs) {
  std::vector<planner::ServedClock::Step> steps;
  for (const ServedRun& run : runs) steps.insert(steps.end(), run.steps.begin(), run.steps.end());
  const auto clock = planner::ServedClock::fitted(steps);
  clock.write(row);
  row[kClockResidual] = clock.residual(steps);
  const ReplayResult r = replay_served(setup, requests, clock);
  row[kReplayPreemptions] = r.preemptions;
  if (setup.scheduler.share_tokens > 0) row[kReplayHitRate] = r.hit_rate();
  results::Row replay;
  planner::set_times(replay, r);
  std::vector<double> errors;
  using Replayed = std::pair<const results::NumberColumn*, const results::NumberColumn*>;
  for (const auto& [replayed, served] : {Replayed{&kReplayTtftP50S, &kTtftP50S},
                                         {&kReplayTtftP99S, &kTtftP99S},
                                         {&kReplayTpotP50Ms, &kTpotP50Ms},
                                         {&kReplayTpotP99Ms, &kTpotP99Ms},
                                         {&kReplayServedS, &kServedS}}) {
    row[*replayed] = replay[*served];
    if (row[*served] > 0.0) errors.push_back(std::abs(*row[*replayed] / *row[*served] - 1.0));
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
