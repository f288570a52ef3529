#include "harness/budget.h"

#include <algorithm>
#include <new>

#include "harness/recorded_workload.h"

namespace kv {
namespace {

class BudgetRun {
 public:
  BudgetRun(const BlockPlan& plan, const BlockLimits& limits)
      : plan_(plan),
        limits_(limits),
        first_(std::max<int64_t>(0, plan.seq_len - plan.experiment->measure.steps)) {}

  void measure(LiveCell& cell) {
    if (!fits(cell, 3 * held_bytes(plan_, cell.spec) + recorded_bytes(), limits_)) return;
    try {
      cell.workload = recorded(plan_.source->workload(cell.spec, plan_.seq_len));
      decode(cell);
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory");
    }
    cell.cache.reset();
  }

 private:
  void decode(LiveCell& cell) {
    cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
    cell.cache = build_cache(cell.spec, cache_shape(plan_, plan_.batch), *cell.ledger);
    cell.row.set("kernel", cell.cache->kernel());
    for (int i = 0; i < plan_.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    prefill(*cell.cache, *cell.workload, cell.ids, 0, first_);
    cell.prompt = first_;
    cell.ledger->reset_peaks();
    TokenFeed feed(*cell.workload, plan_.batch);
    feed.load(first_, plan_.seq_len - first_);
    std::vector<Errors> errors;
    for (int64_t t = first_; t < plan_.seq_len; ++t) {
      cell.step(feed, t, cell.ids, true);
      errors.push_back(cell.errors(feed, t + 1));
    }
    cell.account(std::vector<int64_t>(cell.ids.size(), plan_.seq_len));
    cell.judge(mean_of(errors), static_cast<int64_t>(errors.size()));
  }

  // All of it, twice while it is recorded. In floating point, since a config may ask for absurdly many.
  int64_t recorded_bytes() const {
    const WorkloadShape& w = plan_.source->shape();
    const double rows = static_cast<double>(plan_.batch) * w.layers * (w.q_heads + 2.0 * w.kv_heads);
    const double bytes = 2 * sizeof(float) * rows * static_cast<double>(plan_.seq_len) * w.head_dim;
    return static_cast<int64_t>(std::min(bytes, 1e18));
  }

  // Every position reads all tokens before it, and variants of synthetic families read the same ones.
  std::shared_ptr<const Workload> recorded(const std::shared_ptr<const Workload>& workload) {
    if (workload != source_) {
      recording_ = std::make_shared<RecordedWorkload>(*workload, plan_.batch, plan_.seq_len);
      source_ = workload;
    }
    return recording_;
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  const int64_t first_;  // of the tokens that are held against FP64
  std::shared_ptr<const Workload> source_, recording_;
};

}  // namespace

std::vector<Row> run_budget_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder&) {
  BudgetRun run(plan, limits);
  std::vector<Row> rows;
  for (const Spec& spec : plan.experiment->axes.variants) {
    if (limits.stop()) return {};
    const auto cell = make_cell(plan, spec);
    if (runs(*cell)) run.measure(*cell);
    rows.push_back(cell->row);
  }
  return rows;
}

}  // namespace kv
