// The sensitivity experiment: what a format in one layer's K or V alone does to a model's predictions, everything else in
// f32, and how far the sum of such effects predicts what formats in all layers do.
#include <algorithm>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/sensitivity/arms.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/stats.h"

namespace kv::experiments {
namespace {

const config::Key<int64_t> kMixturesKey{"mixtures", config::SharedTable::kOwn, 0, config::count(0, 10000),
                                        "random mixtures of the codecs, predicted and measured"};

std::vector<int> sensitive_layers(const measure::SweepPoint& point) {
  return choose::cached_layers(measure::cache_shape(point, point.batch));
}

std::vector<SensitivityArm> arms_of(const measure::SweepPoint& point) {
  const std::vector<LayerSpecs>& variants = point.experiment->axes.variants;
  const std::string placement = variants.front().fallback.stages().placement;
  std::vector<std::string> codecs;
  for (const LayerSpecs& variant : variants) {
    codecs.push_back(sensitive_format(variant, config_prefix(point)));
    if (variant.fallback.stages().placement != placement)
      throw std::invalid_argument(config_prefix(point) + "variants has '" + variant.print() +
                                  "'; all have one placement, here '" + placement + "'");
  }
  return sensitivity_arms(placement, codecs, sensitive_layers(point),
                          point.experiment->settings[kMixturesKey], point.config->seed);
}

void check_sensitivity(const measure::SweepPoint& point) {
  check_windows(point);
  arms_of(point);
}

void plan_sensitivity(measure::SweepPoint& point) {
  for (const SensitivityArm& arm : arms_of(point)) add_cell(point, arm.spec).series = arm.format;
  fit_readings(point, point.experiment->settings[kPromptKey]);
}

std::vector<results::Row> run_sensitivity(const measure::SweepPoint& point,
                                          const measure::RunControl& control,
                                          results::ResultsFolder& results) {
  std::vector<results::Row> rows = run_reading(
      point, control, results, {.passages = prompted_windows(point), .schedule = schedule_of(point)});
  if (!rows.empty()) set_sensitivities(arms_of(point), sensitive_layers(point), rows);
  return rows;
}

std::string part_name(const results::Row& row) {
  return row[kSensitiveSide] + " of layer " + number(row[kSensitiveLayer], "%.0f") + " in " +
         row[kSensitiveFormat] + " (KL " + number(row[measure::kKlMean], "%.2g") + ")";
}

// The most and the least sensitive part, and how far measured KLs are from their sums.
std::string most_sensitive(std::span<const results::Row* const> cells) {
  Cells parts;
  std::vector<double> factors;
  for (const results::Row* row : cells) {
    if (!(*row)[measure::kKlMean] || (*row)[results::kVerdict] == results::kUntestedVerdict) continue;
    if ((*row)[kSensitiveLayer]) parts.push_back(row);
    const double predicted = (*row)[kPredictedKl].value_or(0.0), measured = *(*row)[measure::kKlMean];
    if (predicted > 0.0 && measured > 0.0) factors.push_back(measured / predicted);
  }
  if (parts.empty()) return "";
  const auto [least, most] = std::minmax_element(
      parts.begin(), parts.end(),
      [](const auto* a, const auto* b) { return *(*a)[measure::kKlMean] < *(*b)[measure::kKlMean]; });
  std::string text = "Most sensitive is " + part_name(**most) + ", least " + part_name(**least) + ".";
  if (!factors.empty())
    text += " KL in several layers is " + format("%.2f", math::percentile(factors, 0)) + " to " +
            format("%.2f", math::percentile(factors, 100)) + " times the sum over its parts, median " +
            format("%.2f", math::median(factors)) + ", of " + std::to_string(factors.size()) + " caches.";
  return text;
}

constexpr std::array kSensitivityTable{
    TableColumn{"layer", shown<kSensitiveLayer, "%.0f">},
    TableColumn{"side", [](const results::Row& row) { return row[kSensitiveSide]; }},
    TableColumn{measure::kKlMean.heading, shown<measure::kKlMean, "%.2e">},
    TableColumn{"KL by sum", shown<kPredictedKl, "%.2e">}};

}  // namespace

constexpr const config::AnyKey* kSensitivityKeys[] = {&kMixturesKey, &kPromptKey, &kStepTokensKey,
                                                      &kStatedContextKey};
constexpr auto kSensitivityGroups = joined(kOfCells, kSensitivityColumns, measure::kDivergenceColumns,
                                           measure::kSideBySideColumns, kOfModelRuns, kOfReadings);

constinit const Experiment kSensitivity{
    .info = {.name = "sensitivity",
             .help =
                 "codecs in one layer's K or V alone: divergence from the full f32 cache; random mixtures",
             .keys = kSensitivityKeys,
             .needs_model = true},
    .first_step = first_reading_step,
    .check = check_sensitivity,
    .columns = kSensitivityGroups,
    .table = kSensitivityTable,
    .error = &kDivergenceError,
    .sentence = most_sensitive,
    .plan = plan_sensitivity,
    .run = run_sensitivity};

}  // namespace kv::experiments
