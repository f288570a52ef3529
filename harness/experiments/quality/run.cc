// The quality experiment: a cache's effect on a model's predictions, against the full f32 cache on the same tokens.

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/engine_cells.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/written_columns.h"

namespace kv::experiments {
namespace {

measure::StepSchedule quality_schedule(const measure::SweepPoint& point) {
  measure::StepSchedule schedule = schedule_of(point);
  schedule.full_prompt = point.experiment->settings[kPrefillKey] == "full";
  return schedule;
}

bool has_prompt(const config::Config&, const config::ExperimentConfig& sweep) {
  return sweep.settings[kPromptKey] > 0;
}

void plan_quality(measure::SweepPoint& point) {
  add_variants(point);
  add_engines(point);
  fit_readings(point, prompted_windows(point).first, quality_schedule(point));
}

std::vector<results::Row> run_quality(const measure::SweepPoint& point, const measure::RunControl& control,
                                      results::ResultsFolder& results) {
  return run_reading(
      point, control, results,
      {.passages = prompted_windows(point), .schedule = quality_schedule(point), .writes_positions = true});
}

}  // namespace

constexpr const config::AnyKey* kQualityKeys[] = {&kPromptKey, &kPrefillKey, &kStepTokensKey,
                                                  &kStatedContextKey, &kEnginesKey};
constexpr auto kQualityGroups =
    joined(kOfCells, kOfModelRuns, kOfReadings, ColumnGroup{measure::kPrefillColumns, has_prompt},
           measure::kDivergenceColumns, measure::kSideBySideColumns,
           ColumnGroup{measure::kPeerColumns, runs_engines});
constexpr const results::Table* kQualityTables[] = {&measure::kPositions};

constinit const Experiment kQuality{
    .info = {.name = "quality",
             .help = "a model reads a text: perplexity and divergence from the full f32 cache",
             .keys = kQualityKeys,
             .needs_model = true},
    .first_step = first_reading_step,
    .check = check_windows,
    .columns = kQualityGroups,
    .tables = kQualityTables,
    .table = kReadingTable,
    .error = &kDivergenceError,
    .sentence = engines_beside_caches,
    .reads_whole_windows = true,
    .calls_functions = true,
    .plan = plan_quality,
    .run = run_quality};

}  // namespace kv::experiments
