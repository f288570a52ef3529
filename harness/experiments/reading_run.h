// Reads passages with every cache of a sweep point side by side and compares their predictions with the full f32
// cache's.
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

// Windows of the point's length, of which the tokens after the prompt are scored; throws std::invalid_argument if the model or the
// text cannot provide them.
measure::Passages prompted_windows(const measure::SweepPoint& point);
void check_windows(const measure::SweepPoint& point);

// "FILE: [experiment] ", for messages.
std::string config_prefix(const measure::SweepPoint& point);

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

// Sets the columns of a cell whose sequences, open in its cache, have read the passages, and drops the cache.
void account_reading(measure::Cell& cell, const measure::SweepPoint& point, std::span<const SequenceId> ids,
                     const measure::Passages& passages, const measure::StepSchedule& schedule);

// The cell that others' losses are compared with.
struct LossBaseline {
  std::string variant = {};         // empty if it has no losses
  std::vector<double> losses = {};  // [sequences, length]; empty if the predictions are compared already
};
LossBaseline baseline_of(const measure::Cell& cell, std::span<const measure::Prediction> predictions);

// Compares predictions [sequences, length] with the baseline's, and sets their columns and the verdict; fails a cell whose losses are
// not finite. `diverges`: predictions were compared with the full f32 cache's, too.
void summarise_reading(measure::Cell& cell, std::vector<measure::Prediction>& predictions,
                       const measure::Passages& passages, const LossBaseline& baseline, bool diverges);
// Rows of the same by position: a bucket ends at each of `ends`.
std::vector<results::Row> position_rows(const measure::Cell& cell,
                                        std::span<const measure::Prediction> predictions,
                                        const measure::Passages& passages, std::span<const int64_t> ends,
                                        bool diverges);

// The texts that a point's caches read side by side, and what is done with the predictions.
struct Script {
  measure::Passages passages;
  measure::StepSchedule schedule;
  bool writes_positions = false;  // summaries by position
  // Sees each cell's predictions [sequences, length].
  std::function<void(results::Row& cell, std::span<const measure::Prediction> predictions)> score = nullptr;
};
measure::StepSchedule schedule_of(const measure::SweepPoint& point);  // the config's
// Reads and summarises; empty if stopped.
std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      results::ResultsFolder& results, const Script& script);

}  // namespace kv::experiments
