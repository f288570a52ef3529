// Reads passages with every cache of a sweep point side by side and compares their predictions with the full f32
// cache's. The quality and recall experiments share it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/teacher_forcing.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// The first `sequences` disjoint windows of `length` tokens; the last predictions are of the tokens that follow.
// Throws std::invalid_argument if the text, called `name`, is too short.
measure::Passages text_windows(std::span<const int> text, int sequences, int64_t length,
                               const std::string& name = "the text");
// Windows of a sweep point's own text.
measure::Passages text_windows(const measure::SweepPoint& point, int64_t length);

// "FILE: [experiment] ", for messages.
std::string where(const measure::SweepPoint& point);

// Throws std::invalid_argument if the model cannot read `length` tokens. `setting` determines the length; `rest`
// names the tokens beyond it.
void check_length(const measure::SweepPoint& point, int64_t length, const std::string& setting,
                  int64_t rest = 0);

// Records a cell that was read `step` tokens at a time: the step, the largest difference of a loss from decode's,
// and the kind of comparison. If losses differ by more than rounding although chunks must agree with decode,
// `replay` decides: it returns replay_difference. Fails the cell if that exceeds its kernel's error.
void record_chunks(measure::Cell& cell, int64_t step, double difference,
                   const std::function<double()>& replay);

// The context that verdicts speak of: `stated_context`, or the model's longest.
int64_t stated_context(const measure::SweepPoint& point);

// Tokens of the first step in which a cell reads its texts; 0 for one.
int64_t first_reading_step(const measure::SweepPoint& point);

// Decides the listed cells' memory and which are read side by side: with the reference, `point.batch` sequences of
// `point.seq_len` tokens, of which the predictions from position `first` on are scored.
void fit_readings(measure::SweepPoint& point, int64_t first);
void fit_readings(measure::SweepPoint& point, int64_t first, const measure::StepSchedule& schedule);

// Reads and summarises; empty if stopped. `positions`: receives summaries by position, if not null.
std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      const measure::Passages& passages, results::ResultsFolder* positions);
// The same in steps that are not the config's. `score`, if any, sees each cell's predictions [sequences, length].
using ScoreCell = std::function<void(results::Row& cell, std::span<const measure::Prediction> predictions)>;
std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      const measure::Passages& passages, results::ResultsFolder* positions,
                                      const measure::StepSchedule& schedule, const ScoreCell& score);

}  // namespace kv::experiments
