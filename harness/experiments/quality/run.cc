// The quality experiment: a cache's effect on a model's predictions, against the full f32 cache on the same tokens.
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/quality.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/written_columns.h"

namespace kv::experiments {
namespace {

void plan_quality(measure::SweepPoint& point) {
  add_variants(point);
  fit_readings(point, point.experiment->settings[kPromptKey]);
}

std::vector<results::Row> run_quality(const measure::SweepPoint& point, const measure::RunControl& control,
                                      results::ResultsFolder& results) {
  measure::Passages windows = text_windows(point, point.seq_len);
  windows.first = point.experiment->settings[kPromptKey];
  return run_reading(point, control, windows, &results);
}

}  // namespace

void check_windows(const measure::SweepPoint& point) {
  check_length(point, point.seq_len, point.experiment->kind + ".seq_len");
  text_windows(point, point.seq_len);
  if (point.experiment->settings[kPromptKey] < point.seq_len) return;
  throw std::invalid_argument(where(point) + "a prompt of " +
                              std::to_string(point.experiment->settings[kPromptKey]) +
                              " tokens leaves nothing of " + std::to_string(point.seq_len) + " to decode");
}

constexpr const config::AnyKey* kQualityKeys[] = {&kPromptKey, &kStepTokensKey, &kStatedContextKey};
constexpr std::array kOwnOfQuality{ColumnGroup{measure::kDivergenceColumns},
                                   ColumnGroup{measure::kSideBySideColumns}};
constexpr auto kQualityGroups = joined(kOfCells, kOfModelRuns, kOfReadings, kOwnOfQuality);
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
    .reads_whole_windows = true,
    .plan = plan_quality,
    .run = run_quality};

}  // namespace kv::experiments
