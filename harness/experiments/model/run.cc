// The model experiment: decode steps of a whole model with different caches. Each step is split into projections,
// append, view, attention and the rest, and compared with the least time to read its weights and its cache.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <stdexcept>

#include "harness/experiments/break_even.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/engine_cells.h"
#include "harness/experiments/list.h"
#include "harness/experiments/model/cache_half_share_length.h"
#include "harness/experiments/model/columns.h"
#include "harness/experiments/model/model_steps.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/medians.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

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
  add_engines(point);
  for (measure::PlannedCell& cell : point.cells) {
    if (!cell.peer.empty() && point.batch > 1) refuse(cell, "llama-bench writes one sequence");
  }
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
  std::string name(cpu::layout_of(weights.layers.front().up.type()).name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

void write_model_parts(const measure::Cell& cell, const measure::StepTimes& times, size_t step,
                       results::Row& row) {
  measure::write_parts(cell, times, step, row);
  row[measure::kProjectionsUs] = times.projections_us;
  if (times.state_us > 0.0) row[measure::kStateUs] = times.state_us;
  row[measure::kRestUs] = times.rest_us;
}

// Gives an engine's times of repetitions, which it took by itself.
std::function<measure::StepTimes()> told(std::vector<double> times) {
  const auto next = std::make_shared<size_t>(0);
  return [times = std::move(times), next] { return measure::StepTimes{.attend_us = times.at((*next)++)}; };
}

struct Timed {
  std::optional<ModelSteps> model;
  EngineCells::Times engine = {};
  measure::Samples prompts;
  int64_t copied_by_checks = 0;
};

class ModelTrial : public Trial {
 public:
  using Trial::Trial;

 private:
  void begin(const Group&) override {
    engines_.emplace(point());
    timed_.clear();
    roofline_.reset();
  }
  // Its sequences continue in the timed steps.
  void prepare(measure::Cell& cell) override {
    Timed& timed = timed_[&cell];
    if (!cell.peer.empty()) {
      timed.engine = engines_->time(cell, context_tokens(point()), reads_prompt(point()));
      return;
    }
    const bool reads = cell.uncached || reads_prompt(point());
    const auto rows = std::make_shared<workload::ContextRows>(
        point().source->shape(), reads ? 0 : context_tokens(point()), point().config->seed);
    cell.workload = rows;
    if (cell.uncached) {
      cell.ledger = std::make_unique<memory::Ledger>(point().memory_bytes);
    } else {
      measure::open_cache(cell, point(), point().batch * (reads_prompt(point()) ? 2 : 1));
    }
    timed.model.emplace(cell, point(), *rows);
    timed.model->account();
    const int64_t copied = cell.ledger->copied_bytes();
    cell.judge(timed.model->errors(*rows), 1);
    timed.copied_by_checks = cell.ledger->copied_bytes() - copied;
    cell.workload.reset();
  }

  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    Timed& timed = timed_.at(&cell);
    const auto add_told = [&](const char* kind, const std::vector<double>& times, measure::Samples& samples) {
      if (!times.empty())
        tasks.push_back(measure::sampled(
            cell, samples, {.kind = kind, .steps = 1, .step = told(times), .is_elsewhere = true}, results()));
    };
    add_told("step", timed.engine.step_us, cell.steps);
    add_told("prefill", timed.engine.prompt_us, timed.prompts);
    if (!cell.peer.empty()) return;
    tasks.push_back(measure::sampled(cell, cell.steps,
                                     {.kind = "step",
                                      .steps = point().experiment->measure.steps,
                                      .step = [&timed] { return timed.model->step(); },
                                      .write = write_model_parts},
                                     results()));
    if (!reads_prompt(point())) return;
    const auto read = [&timed] { return measure::StepTimes{.attend_us = timed.model->read_prompt() * 1e6}; };
    tasks.push_back(measure::sampled(
        cell, timed.prompts, {.kind = "prefill", .steps = 1, .step = read, .repeats = true}, results()));
  }
  void add_comparisons(const Group& group, measure::TimedTasks& tasks) override {
    if (point().context->gpu()) return;
    Group own;
    std::ranges::copy_if(group, std::back_inserter(own),
                         [](const measure::Cell* cell) { return cell->peer.empty(); });
    roofline_.emplace(own, false, tasks);
    weights_ = measure::added(measure::weights_bandwidth_task(point().source->model()->weights()), tasks);
  }

  void summarise(measure::Cell& cell) override {
    const Timed& timed = timed_.at(&cell);
    if (!cell.peer.empty()) return summarise_engine(cell, timed);
    timed.model->account();
    cell.result[results::kBytesCopied] = *cell.result[results::kBytesCopied] - timed.copied_by_checks;
    cell.summarise();
    describe(cell, timed);
    if (!roofline_) return;
    roofline_->write(cell);
    write_roofline(cell, *timed.model);
  }

  // Its steps have no parts, and its weights are as its file has them.
  void summarise_engine(measure::Cell& cell, const Timed& timed) const {
    cell.summarise();
    describe_rates(cell, timed);
    results::Row& row = cell.result;
    row[kContext] = "prefill";
    for (results::Number* unknown : {&row[measure::kAppendP50Us], &row[measure::kViewP50Us],
                                     &row[measure::kAttendP50Us], &row[measure::kReadGbps]})
      unknown->reset();
  }

  void describe(measure::Cell& cell, const Timed& timed) const {
    results::Row& row = cell.result;
    const double batch = point().batch;
    row[kWeights] = point().config->workload.weights;
    row[kWeightsType] = type_of(point().source->model()->weights());
    row[kContext] = cell.uncached ? "prefill" : settings()[kContextKey];
    row[kWeightBytesPerToken] = static_cast<double>(timed.model->weight_bytes()) / batch;
    row[kCacheBytesPerToken] = static_cast<double>(cell.read_bytes) / batch;
    row[kProjectionMultiplyAdds] = timed.model->multiply_adds();
    if (!cell.uncached)
      row[kCacheShare] =
          (*row[measure::kAppendP50Us] + *row[measure::kViewP50Us] + *row[measure::kAttendP50Us]) /
          *row[measure::kStepP50Us];
    describe_rates(cell, timed);
  }

  void describe_rates(measure::Cell& cell, const Timed& timed) const {
    results::Row& row = cell.result;
    const double batch = point().batch;
    const auto rate = [&](const results::NumberColumn& step_us) {  // too few repetitions have no interval
      return row[step_us] ? results::Number(batch / *row[step_us] * 1e6) : results::Number();
    };
    row[measure::kTokensPerS] = rate(measure::kStepP50Us);
    row[measure::kTokensPerS.low] = rate(measure::kStepP50Us.high);
    row[measure::kTokensPerS.high] = rate(measure::kStepP50Us.low);
    if (timed.prompts.empty()) return;
    const std::vector<double> prompts = measure::repetition_medians(timed.prompts);
    const double p50 = math::median(prompts);
    row.set(measure::kPrefillP50Us, p50, math::median_interval(prompts));
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

  void compare(const measure::Cells& cells) override { compare_with_first(cells); }

  std::optional<EngineCells> engines_;
  std::map<const measure::Cell*, Timed> timed_;
  std::optional<measure::RooflineTasks> roofline_;
  const measure::BandwidthTask* weights_ = nullptr;
};

}  // namespace

constexpr const config::AnyKey* kModelKeys[] = {&kContextKey, &kEnginesKey};
constexpr auto kModelGroups = joined(
    kOfCells, kOfKept, kOfSteps, kOfModelRuns, measure::kPromptColumns, measure::kRooflineColumns,
    kModelColumns, ColumnGroup{measure::kPeerColumns, runs_engines}, kOfOutputs, kOfChoices, kOfComparisons);
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
             .help = "decode of a whole model: tokens per second, and a step's time by part",
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
        [](std::span<const results::Row* const> cells) {
          return cache_half_share_length(cells) + break_even(cells);
        },
    .has_steady_steps = true,
    .plan = plan_model,
    .run = measured<ModelTrial>};

}  // namespace kv::experiments
