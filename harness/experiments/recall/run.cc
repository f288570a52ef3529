// The recall experiment: a passage comes again at a distance, and the loss on its second copy counts.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "harness/config/key.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/recall/passages.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/random.h"
#include "harness/results/column.h"

namespace kv::experiments {
namespace {

constexpr auto kDistance =
    results::IntegerColumn{"distance", "tokens", "recall: tokens from the passage to its copy"}
        .axis("distance {}", true)
        .swept_by("distance");
constexpr auto kPassageTokens =
    results::IntegerColumn{"passage_tokens", "tokens", "recall: tokens of one copy of the passage"}
        .axis("passage of {} tokens")
        .swept_by("passage");
constexpr auto kRecallColumns = results::column_list(kDistance, kPassageTokens);

const config::Axis<int64_t> kDistanceAxis{kDistance,
                                          "distance",
                                          config::SharedTable::kSweep,
                                          {},
                                          config::token_list(),
                                          "tokens from a passage to its copy",
                                          "distance = [100, 200, 400]"};
const config::Axis<int64_t> kPassageAxis{
    kPassageTokens, "passage", config::SharedTable::kSweep, {64}, config::token_list(), "tokens of one copy"};
const config::Key<std::string> kPassagesKey{"passages", config::SharedTable::kMeasure, "random",
                                            config::choice({"random", "text"}),
                                            "passages of random tokens, or of the text"};

Recall recall_of(const measure::SweepPoint& point) {
  return {*point.axes[kDistance], *point.axes[kPassageTokens]};
}

std::string recall_suffix(const measure::SweepPoint& point) {
  return "distance " + std::to_string(*point.axes[kDistance]) + " passage " +
         std::to_string(*point.axes[kPassageTokens]);
}

void check_recall(const measure::SweepPoint& point) {
  if (*point.axes[kPassageTokens] <= Recall::kCue) {
    throw std::invalid_argument(config_prefix(point) + "passage must be more than the " +
                                std::to_string(Recall::kCue) + " tokens that identify a copy, not " +
                                std::to_string(*point.axes[kPassageTokens]));
  }
  if (*point.axes[kDistance] < *point.axes[kPassageTokens]) {
    throw std::invalid_argument(config_prefix(point) + "distance " + std::to_string(*point.axes[kDistance]) +
                                " is shorter than the passage of " +
                                std::to_string(*point.axes[kPassageTokens]) + " tokens");
  }
  check_length(point, point.seq_len, "recall.distance and recall.passage together", Recall{0, 0}.length());
  if (point.experiment->settings[kPassagesKey] == "text") text_windows(point, point.seq_len);
}

void plan_recall(measure::SweepPoint& point) {
  add_variants(point, recall_suffix(point));
  fit_readings(point, recall_of(point).first_scored());
}

// Draws every sequence independently from the seed; ids below 3 are the tokenizer's marks.
std::vector<int> random_ids(const measure::SweepPoint& point, int64_t count) {
  constexpr uint64_t kStream = 0x7265'63616c6c;  // "recall"
  constexpr int kMarks = 3;
  const int vocab = point.source->model()->config().vocab_size;
  std::vector<int> ids;
  for (int s = 0; s < point.batch; ++s) {
    const uint64_t key = math::random::key({point.config->seed, kStream, static_cast<uint64_t>(s)});
    for (int64_t i = 0; i < count; ++i) {
      const auto drawn =
          math::random::below(key, static_cast<uint64_t>(i), static_cast<uint64_t>(vocab - kMarks));
      ids.push_back(kMarks + static_cast<int>(drawn));
    }
  }
  return ids;
}

measure::Passages recall_passages(const measure::SweepPoint& point) {
  const Recall recall = recall_of(point);
  if (point.experiment->settings[kPassagesKey] == "random")
    return with_repeat(random_ids(point, recall.length() + 1), point.batch, recall);
  return with_repeat(text_windows(point, recall.length()).ids, point.batch, recall);
}

std::vector<results::Row> run_recall(const measure::SweepPoint& point, const measure::RunControl& control,
                                     results::ResultsFolder& results) {
  return run_reading(point, control, results,
                     {.passages = recall_passages(point), .schedule = schedule_of(point)});
}

// Derives the length from passage and distance.
bool place_recall(measure::SweepPoint& point) {
  point.seq_len = recall_of(point).length();
  return true;
}

constexpr const config::AnyAxis* kRecallAxes[] = {&config::kBatch, &kPassageAxis, &kDistanceAxis};
constexpr const config::AnyKey* kRecallKeys[] = {&kPassagesKey, &kPromptKey, &kStepTokensKey,
                                                 &kStatedContextKey};

}  // namespace

measure::Passages with_repeat(std::vector<int> ids, int sequences, const Recall& recall) {
  const int64_t length = recall.length();
  for (int s = 0; s < sequences; ++s) {
    const auto copy = ids.begin() + s * (length + 1) + Recall::kLead;
    std::copy_n(copy, recall.passage, copy + recall.distance);
  }
  return {.sequences = sequences, .length = length, .ids = std::move(ids), .first = recall.first_scored()};
}

constexpr auto kRecallGroups = joined(kOfCells, kRecallColumns, measure::kDivergenceColumns,
                                      measure::kSideBySideColumns, kOfModelRuns, kOfReadings);

constinit const Experiment kRecall{
    .info = {.name = "recall",
             .help = "a passage repeats at a distance: loss on its second copy",
             .axes = kRecallAxes,
             .keys = kRecallKeys,
             .needs_model = true},
    .derive_point = place_recall,
    .first_step = first_reading_step,
    .check = check_recall,
    .columns = kRecallGroups,
    .table = kReadingTable,
    .error = &kDivergenceError,
    .calls_functions = true,
    .plan = plan_recall,
    .run = run_recall};

}  // namespace kv::experiments
