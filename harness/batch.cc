#include "harness/batch.h"

#include <algorithm>
#include <map>
#include <new>

#include "harness/bytes.h"
#include "harness/tasks.h"
#include "variants/registry.h"

namespace kv {
namespace {

constexpr const char* kNull = "null";

class BatchRun {
 public:
  BatchRun(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results)
      : plan_(plan), limits_(limits), results_(results) {
    // All sequences take the same number of timed steps, so the shortest one bounds it.
    steps_ = std::min<int64_t>(plan.experiment->measure.steps,
                               *std::min_element(plan.tokens.begin(), plan.tokens.end()));
    for (const int64_t tokens : plan.tokens) prompts_.push_back(tokens - steps_);
  }

  // False if it was stopped.
  bool run(const std::vector<std::unique_ptr<LiveCell>>& cells) {
    for (const auto& cell : cells) {
      if (limits_.stop()) return false;
      if (runs(*cell)) prepare(*cell);
    }
    std::vector<std::unique_ptr<TimedTask>> tasks;
    for (const auto& cell : cells) {
      if (runs(*cell)) tasks.push_back(step_task(*cell, feed(*cell), 0, steps_, results_));
    }
    if (tasks.empty()) return true;
    try {
      if (!run_interleaved(tasks, plan_.experiment->measure.repetitions, limits_.stop)) return false;
    } catch (const std::bad_alloc&) {
      for (const auto& cell : cells) {
        if (runs(*cell)) give_up(*cell, "out_of_memory", "ran out of memory while it was timed");
        cell->steps.clear();
      }
    }
    for (const auto& cell : cells) {
      if (runs(*cell)) cell->summarise();
    }
    return true;
  }

 private:
  // First a cache for the batch and nothing else, which is verified and accounted; then one with room for the
  // forks that the timed steps run on.
  void prepare(LiveCell& cell) {
    const Spec written = cell.spec;
    try {
      const int64_t needed = needed_bytes(written);
      if (!fits(cell, held_ + needed, limits_)) return;
      cell.workload = plan_.source->workload(written, plan_.seq_len);
      start(cell, written, 1);
      cell.ledger->reset_peaks();
      for (int64_t t = 0; t < steps_; ++t) cell.step(feed(cell), t, cell.ids, true);
      cell.account(plan_.tokens, prompts_);
      set_waste(cell.row);
      check(cell);
      if (!runs(cell)) return;
      start(cell, written, 2);
      held_ += needed;
    } catch (const std::bad_alloc& e) {
      give_up(cell, "out_of_memory",
              "ran out of memory at " + human_bytes(limits_.memory_bytes) + " (" + e.what() + ")");
    }
  }

  Spec fitted(const Spec& written, int times) const {
    return with_fitting_pool(written, cache_shape(plan_, times * plan_.batch), plan_.tokens, times);
  }

  // The batch before its timed steps, in a cache with room for it `times` over.
  void start(LiveCell& cell, const Spec& written, int times) {
    cell.cache.reset();
    cell.ids.clear();
    cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
    cell.spec = fitted(written, times);
    cell.cache = build_cache(cell.spec, cache_shape(plan_, times * plan_.batch), *cell.ledger);
    cell.row.set("kernel", cell.cache->kernel());
    for (int i = 0; i < plan_.batch; ++i) {
      cell.ids.push_back(cell.cache->add_sequence());
      prefill(*cell.cache, *cell.workload, {&cell.ids.back(), 1}, 0, prompts_[static_cast<size_t>(i)], i);
    }
  }

  TokenFeed& feed(const LiveCell& cell) {
    auto& feed = feeds_[cell.workload.get()];
    if (!feed) {
      feed = std::make_unique<TokenFeed>(*cell.workload, plan_.batch, prompts_);
      feed->load(0, steps_);
    }
    return *feed;
  }

  // Every sequence at its own length; the columns get the worst.
  void check(LiveCell& cell) {
    Errors worst;
    TokenFeed& tokens = feed(cell);
    for (int i = 0; i < plan_.batch; ++i) {
      std::vector<Output> outputs;
      for (int layer = 0; layer < cell.cache->shape().layers; ++layer) {
        outputs.push_back({.sequence = cell.ids[static_cast<size_t>(i)],
                           .workload_sequence = i,
                           .layer = layer,
                           .q = tokens.q(layer, i, steps_ - 1),
                           .out = tokens.out(layer, i)});
      }
      const Errors errors =
          verify(*cell.cache, *cell.workload, plan_.tokens[static_cast<size_t>(i)], outputs);
      if (const std::string failure = errors.failure(); !failure.empty()) {
        return give_up(cell, "failed", "sequence " + std::to_string(i) + ": " + failure);
      }
      if (i == 0 || errors.rel_l2 > worst.rel_l2) worst = errors;
    }
    worst.write(cell.row);
    cell.row.set("status", "ok");
  }

  static void set_waste(Row& row) {
    const double slack = row.number("bytes_slack").value();
    row.set("waste_share",
            slack / (row.number("bytes_payload").value() + row.number("bytes_metadata").value() + slack));
  }

  // Of the larger of the two caches. In floating point first: the closed form, in whole numbers, could
  // overflow.
  int64_t needed_bytes(const Spec& written) const {
    const WorkloadShape& s = plan_.source->shape();
    const double padded = 2.0 * sizeof(float) * plan_.batch * static_cast<double>(plan_.seq_len) * s.layers *
                          s.kv_heads * s.head_dim;
    if (padded > 1e15) return static_cast<int64_t>(std::min(padded, 1e18));
    std::vector<int64_t> twice(plan_.tokens);
    twice.insert(twice.end(), plan_.tokens.begin(), plan_.tokens.end());
    return predicted_bytes(fitted(written, 2), cache_shape(plan_, 2 * plan_.batch), twice);
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  ResultsFolder& results_;
  int64_t steps_;
  std::vector<int64_t> prompts_;  // tokens of each sequence before the timed steps
  int64_t held_ = 0;              // bytes of the caches that wait to be timed
  std::map<const Workload*, std::unique_ptr<TokenFeed>> feeds_;
};

}  // namespace

Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times) {
  const auto pool = spec.placement.values.find("pool");
  if (pool == spec.placement.values.end() || pool->second != "0") return spec;
  const int64_t block = spec.placement.integer("block");
  int64_t blocks = 0;
  for (const int64_t tokens : lengths) {
    // A prompt that is cut is stored whole before.
    const int64_t rows = retention_of(spec).cuts_prompt ? tokens : placed_rows(spec, shape, tokens);
    blocks += (rows + block - 1) / block;
  }
  Spec fitting = spec;
  fitting.placement.values["pool"] = std::to_string(std::max<int64_t>(1, blocks * shape.layers * times));
  return fitting;
}

std::vector<std::string> batch_keys(const BlockPlan& plan) {
  std::vector<std::string> keys;
  const std::vector<Spec>& variants = plan.experiment->axes.variants;
  for (const Spec& spec : variants) keys.push_back(plan.key(spec, plan.lengths));
  if (plan.experiment->measure.null_ab)
    keys.push_back(plan.key(variants.front(), plan.lengths + " " + kNull));
  return keys;
}

std::vector<Row> run_batch_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results) {
  std::vector<std::unique_ptr<LiveCell>> cells;
  for (const Spec& spec : plan.experiment->axes.variants) {
    cells.push_back(make_cell(plan, spec, plan.lengths));
    if (cells.size() > 1 || !plan.experiment->measure.null_ab) continue;
    cells.push_back(make_cell(plan, spec, plan.lengths + " " + kNull));
    cells.back()->row.set("verdict", kNull);
  }
  for (const auto& cell : cells) cell->row.set("lengths", plan.lengths);
  BatchRun run(plan, limits, results);
  if (!run.run(cells)) return {};
  std::vector<Row> rows;
  for (const auto& cell : cells) {
    compare_cell(*cell, *cells.front(), cells.front()->row.text("variant"));
    rows.push_back(cell->row);
  }
  return rows;
}

}  // namespace kv
