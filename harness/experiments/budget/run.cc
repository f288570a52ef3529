// The budget experiment: the error of retentions and codecs against their bytes, averaged over the last tokens. A
// batch's sequences are independent draws, or windows of a text; the scatter between them gives the error's interval.
#include <algorithm>

#include "harness/experiments/budget/columns.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/medians.h"
#include "harness/workload/recorded_workload.h"

namespace kv::experiments {
namespace {

// Bytes of the whole workload, twice while it is recorded. Floating point, since a config may ask for absurdly many.
int64_t recorded_bytes(const measure::SweepPoint& point) {
  const workload::WorkloadShape& w = point.source->shape();
  const double values =
      measure::value_count(point, w.q_heads + 2.0 * w.kv_heads, static_cast<double>(point.seq_len));
  return static_cast<int64_t>(std::min(2 * sizeof(float) * values, 1e18));
}

// The first token compared with FP64; those before are the prompt.
int64_t first_checked(const measure::SweepPoint& point) {
  return std::max<int64_t>(0, point.seq_len - point.experiment->measure.steps);
}

void check_budget(const measure::SweepPoint& point) {
  if (point.source->model() && point.batch > 1) text_windows(point, point.seq_len);
}

void plan_budget(measure::SweepPoint& point) {
  add_variants(point);
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return 3 * measure::held_bytes(point, cell.spec) + recorded_bytes(point);
  });
}

class BudgetTrial : public Trial {
 public:
  BudgetTrial(const measure::SweepPoint& point, const measure::RunControl& control,
              results::ResultsFolder& results)
      : Trial(point, control, results), first_(first_checked(point)) {}

 private:
  How how() const override { return How::kAlone; }

  void prepare(measure::Cell& cell) override {
    cell.workload = recorded(point().source->workload(cell.spec, point().seq_len, point().batch));
    measure::open_cache(cell, point(), point().batch);
    fill(cell, point(), first_);
    cell.prompt = first_;
    cell.ledger->reset_peaks();
    workload::TokenFeed feed(*cell.workload, point().batch);
    feed.load(first_, point().seq_len - first_);
    std::vector<verify::Errors> errors;
    std::vector<double> of_sequences(cell.ids.size());  // means over the last tokens
    const auto positions = static_cast<double>(point().seq_len - first_);
    for (int64_t t = first_; t < point().seq_len; ++t) {
      cell.step(feed, t, cell.ids, true);
      for (int i = 0; i < point().batch; ++i) {
        errors.push_back(cell.errors(feed, t + 1, i, i + 1));
        of_sequences[static_cast<size_t>(i)] += errors.back().metric("err_rel_l2") / positions;
      }
    }
    cell.account(std::vector<int64_t>(cell.ids.size(), point().seq_len));
    verify::Errors mean = mean_of(errors);
    mean.heads *= point().batch;
    cell.judge(mean, point().seq_len - first_);
    set_interval(cell.result, of_sequences);
  }

  static void set_interval(results::Row& result, std::span<const double> errors) {
    const auto [least, most] = std::minmax_element(errors.begin(), errors.end());
    if (errors.size() < math::kMinSamples || *least == *most) return;  // a dump's sequences are all alike
    const math::ConfidenceInterval interval = math::interval_of_mean(errors);
    result[kErrCiLow] = interval.low;
    result[kErrCiHigh] = interval.high;
  }

  // Every position reads all earlier tokens, and variants of synthetic families read the same ones.
  std::shared_ptr<const workload::Workload> recorded(
      const std::shared_ptr<const workload::Workload>& workload) {
    if (workload != source_) {
      recording_ = std::make_shared<workload::RecordedWorkload>(*workload, point().batch, point().seq_len);
      source_ = workload;
    }
    return recording_;
  }

  const int64_t first_;
  std::shared_ptr<const workload::Workload> source_, recording_;
};

}  // namespace

constexpr auto kBudgetGroups = joined(kOfCells, kOfKept, kOfOutputs, kBudgetColumns, kOfChoices);

constinit const Experiment kBudget{.info = {.name = "budget",
                                            .help = "error against bytes, averaged over the last tokens; "
                                                    "retentions at equal numbers of kept tokens"},
                                   .fixed_tokens = 4000.0,
                                   .first_step = first_checked,
                                   .check = check_budget,
                                   .columns = kBudgetGroups,
                                   .plan = plan_budget,
                                   .run = measured<BudgetTrial>};

}  // namespace kv::experiments
