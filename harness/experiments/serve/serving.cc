#include "harness/experiments/serve/serving.h"

#include <algorithm>
#include <optional>

#include "harness/measure/timing.h"
#include "harness/model/cached_model.h"
#include "harness/model/sampling.h"
#include "harness/model/step_parts.h"
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
  size_t next = 0;
  return serving.finish(planner::replay(
      [&](io::Request& request) {
        if (next == all.size() || stop()) return false;
        request = all[next++];
        return true;
      },
      rows,
      [&](const planner::StepPlan& plan, const planner::StepWork& work) { return serving.step(plan, work); },
      setup.scheduler, {}, &serving));
}

planner::ReplayResult replay_served(const ServingSetup& setup, std::span<const ServedRequest> requests,
                                    const planner::StepDriver& driver) {
  planner::RowAllocator rows(geometry_of(setup.model->config()), setup.spec, setup.room);
  const std::vector<io::Request> all = to_schedule(setup, requests);
  size_t next = 0;
  return planner::replay(
      [&](io::Request& request) {
        if (next == all.size()) return false;
        request = all[next++];
        return true;
      },
      rows, driver, setup.scheduler);
}

}  // namespace kv::experiments
