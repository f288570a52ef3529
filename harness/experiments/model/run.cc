// The model experiment: decode steps of a whole model with different caches. Each step is split into projections,
// append, view, attention and the rest, and compared with the least time to read its weights and its cache.
#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>

#include "harness/experiments/break_even.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/model/axes.h"
#include "harness/experiments/model/columns.h"
#include "harness/experiments/model/half_a_step.h"
#include "harness/experiments/model/model_steps.h"
#include "harness/experiments/timed_group.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/medians.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/roofline_columns.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/weights_bandwidth.h"
#include "harness/results/cell_columns.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

bool reads_prompt(const measure::SweepPoint& point) {
  return point.experiment->settings[kContextKey] == "prefill";
}

void check_model(const measure::SweepPoint& point) {
  if (context_tokens(point) >= 1) return;
  const config::MeasureConfig& m = point.experiment->measure;
  throw std::invalid_argument(point.config->path + ": seq_len of model: " + std::to_string(point.seq_len) +
                              " tokens leave no context before " + std::to_string(m.repetitions) +
                              " repetitions of " + std::to_string(m.steps) +
                              " steps; more tokens, or fewer steps, are needed");
}

void plan_model(measure::SweepPoint& point) {
  add_variants_and_aa_test(point);
  add_uncached(point);
  const int64_t recorded = reads_prompt(point) ? point.seq_len : 1;
  fit_side_by_side(point, shared_bytes(point, recorded), [&](const measure::PlannedCell& cell) {
    if (cell.uncached) return uncached_bytes(point);
    const int64_t held = measure::held_bytes(point, cell.spec);
    // A growing cache is held twice while it is copied, a layer at a time; a prompt is read beside the timed
    // sequences.
    return held * (reads_prompt(point) ? 2 : 1) + 2 * held / point.source->shape().row_layers() +
           measure::copied_bytes(point, cell.spec);
  });
}

std::string type_of(const model::ModelWeights& weights) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16"};
  return kNames[static_cast<int>(weights.layers.front().up.type())];
}

// Timed tasks of a cell beside its steps.
struct Timed {
  std::shared_ptr<workload::ContextRows> rows;
  std::optional<ModelSteps> model;
  std::vector<double> prompt_us;
  int64_t copied_by_checks = 0;
};

class ModelGroup : public TimedGroup {
 public:
  using TimedGroup::TimedGroup;

 private:
  std::shared_ptr<const workload::Workload> workload_of(const measure::Cell& cell) override {
    Timed& timed = timed_[&cell];
    const bool reads = cell.uncached || reads_prompt(point());
    timed.rows = std::make_shared<workload::ContextRows>(
        point().source->shape(), reads ? 0 : context_tokens(point()), point().config->seed);
    return timed.rows;
  }

  void verify(measure::Cell& cell) override {
    Timed& timed = timed_[&cell];
    if (cell.uncached) {
      cell.ledger = std::make_unique<memory::Ledger>(point().memory_bytes);
    } else {
      measure::open_cache(cell, point(), point().batch * (reads_prompt(point()) ? 2 : 1));
    }
    timed.model.emplace(cell, point(), *timed.rows);
    timed.model->account();
    const int64_t copied = cell.ledger->copied_bytes();
    cell.judge(timed.model->errors(*timed.rows), 1);
    timed.copied_by_checks = cell.ledger->copied_bytes() - copied;
    cell.workload.reset();
    timed.rows.reset();
  }
  void make_ready(measure::Cell&) override {}  // its sequences continue

  void add_tasks(measure::Cell& cell, Tasks& tasks) override {
    Timed& timed = timed_[&cell];
    tasks.push_back(model_step_task(cell, *timed.model, point().experiment->measure.steps, results()));
    if (reads_prompt(point())) tasks.push_back(prompt_task(cell, *timed.model, timed.prompt_us, results()));
  }
  void add_comparisons(const std::vector<measure::Cell*>& group, Tasks& tasks) override {
    if (point().context->gpu()) return;
    roofline_.emplace(group, false, tasks);
    auto weights = std::make_unique<measure::WeightsBandwidthTask>(point().source->model()->weights());
    weights_ = weights.get();
    tasks.push_back(std::move(weights));
  }

  void summarise(measure::Cell& cell) override {
    const Timed& timed = timed_.at(&cell);
    timed.model->account();
    cell.result[results::kBytesCopied] = *cell.result[results::kBytesCopied] - timed.copied_by_checks;
    cell.summarise();
    describe(cell, timed);
    if (!roofline_) return;
    roofline_->write(cell);
    write_roofline(cell, *timed.model);
  }

  void describe(measure::Cell& cell, const Timed& timed) const {
    results::Row& row = cell.result;
    const double batch = point().batch;
    row[kWeights] = point().config->workload.weights;
    row[kWeightsType] = type_of(point().source->model()->weights());
    row[kContext] = cell.uncached ? "prefill" : point().experiment->settings[kContextKey];
    const auto rate = [&](const results::NumberColumn& step_us) {  // too few repetitions have no interval
      return row[step_us] ? results::Number(batch / *row[step_us] * 1e6) : results::Number();
    };
    row[measure::kTokensPerS] = rate(measure::kStepP50Us);
    row[measure::kTokensPerS.low] = rate(measure::kStepP50Us.high);
    row[measure::kTokensPerS.high] = rate(measure::kStepP50Us.low);
    row[kWeightBytesPerToken] = static_cast<double>(timed.model->weight_bytes()) / batch;
    row[kCacheBytesPerToken] = static_cast<double>(cell.read_bytes) / batch;
    row[kProjectionMultiplyAdds] = timed.model->multiply_adds();
    if (!cell.uncached)
      row[kCacheShare] =
          (*row[measure::kAppendP50Us] + *row[measure::kViewP50Us] + *row[measure::kAttendP50Us]) /
          *row[measure::kStepP50Us];
    if (timed.prompt_us.empty()) return;
    const double p50 = math::median(timed.prompt_us);
    row.set(measure::kPrefillP50Us, p50, math::median_interval(timed.prompt_us));
    row[measure::kPrefillTokensPerS] = batch * static_cast<double>(context_tokens(point())) / p50 * 1e6;
  }

  void write_roofline(measure::Cell& cell, const ModelSteps& model) const {
    results::Row& row = cell.result;
    const double gbps = weights_->gbps();
    row[kWeightsGbps] = gbps;
    row[kProjectionsGbps] =
        static_cast<double>(model.weight_bytes()) / *row[measure::kProjectionsP50Us] * 1e-3;
    row[kProjectionsShare] = *row[kProjectionsGbps] / gbps;
    const double multiply_seconds =
        static_cast<double>(model.multiply_adds()) / roofline_->f32_multiply_adds_per_s();
    row[kWeightsBoundUs] = measure::roofline_of(model.weight_bytes(), gbps, multiply_seconds).us;
    if (row[results::kBytesState])
      row[kStateBoundUs] = static_cast<double>(*row[results::kBytesState]) / gbps * 1e-3;
    row[kStepBoundUs] = *row[kWeightsBoundUs] + *row[measure::kBoundUs] + row[kStateBoundUs].value_or(0.0);
    row[kStepBoundShare] = *row[kStepBoundUs] / *row[measure::kStepP50Us];
  }

  std::map<const measure::Cell*, Timed> timed_;
  std::optional<measure::RooflineTasks> roofline_;
  const measure::WeightsBandwidthTask* weights_ = nullptr;
};

std::vector<results::Row> run_model(const measure::SweepPoint& point, const measure::RunControl& control,
                                    results::ResultsFolder& results) {
  return run_groups<ModelGroup>(point, control, results);
}

}  // namespace

constexpr const config::AnyKey* kModelKeys[] = {&kContextKey};
constexpr std::array kOwnOfModel{ColumnGroup{measure::kPromptColumns}, ColumnGroup{measure::kRooflineColumns},
                                 ColumnGroup{kModelColumns}};
constexpr auto kModelGroups =
    joined(kOfCells, kOfKept, kOfSteps, kOfModelRuns, kOwnOfModel, kOfOutputs, kOfChoices, kOfComparisons);
constexpr const results::Table* kModelTables[] = {&measure::kSamples};

const TableColumn kModelTable[] = {
    {"tokens/s (95 %)", estimated<measure::kTokensPerS, "%.3g">},
    {"cache", [](const results::Row& row) { return percent(row[kCacheShare]); }},
    {"roofline", [](const results::Row& row) { return percent(row[kStepBoundShare]); }},
    {"read", [](const results::Row& row) { return percent(row[kProjectionsShare]); }},
    {"TTFT, s",
     [](const results::Row& row) {
       return row[measure::kPrefillP50Us] ? format("%.3g", *row[measure::kPrefillP50Us] * 1e-6) : "-";
     }},
    kRatioText};

constinit const Experiment kModel{
    .info = {.name = "model",
             .help = "decode of a whole model: tokens a second, and a step's time by part",
             .keys = kModelKeys,
             .needs_model = true,
             .runs_random_weights = true,
             .runs_uncached = true,
             .table = "whole_model"},  // [model] is a geometry
    .beyond_trained_context = true,
    .fixed_tokens = 4000.0,
    .check = check_model,
    .columns = kModelGroups,
    .tables = kModelTables,
    .table = kModelTable,
    .sentence =
        [](std::span<const results::Row* const> cells) { return half_a_step(cells) + break_even(cells); },
    .has_steady_steps = true,
    .plan = plan_model,
    .run = run_model};

}  // namespace kv::experiments
