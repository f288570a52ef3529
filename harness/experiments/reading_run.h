// Reads passages with every cache of a sweep point side by side and compares their predictions with the full
// f32 cache's: what the quality and recall experiments share.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/teacher_forcing.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// The first `sequences` disjoint windows of `length` tokens, whose last predictions are of the tokens that
// follow. Throws std::invalid_argument if the text, called `name`, is too short.
measure::Passages text_windows(std::span<const int> text, int sequences, int64_t length,
                               const std::string& name = "the text");
// The same of a sweep point's own text.
measure::Passages text_windows(const measure::SweepPoint& point, int64_t length);

// "FILE: [experiment] ", for messages.
std::string where(const measure::SweepPoint& point);

// Throws std::invalid_argument if the model cannot read so many tokens. `setting` is what says how many, and
// `rest` are tokens beside those that it names.
void check_length(const measure::SweepPoint& point, int64_t length, const std::string& setting,
                  int64_t rest = 0);

// Of a cell that was read `step` tokens at a time: says so, by how much a loss differs from decode's at most, and
// how the two were compared. Where losses differ by more than rounding though chunks must agree with decode, `replay`
// decides: what replay_difference returns for it. Fails the cell if that is more than its kernel's error.
void record_chunks(measure::Cell& cell, int64_t step, double difference,
                   const std::function<double()>& replay);

// Decides memory of the listed cells and which are read side by side: with the reference, `point.batch`
// sequences of `point.seq_len` tokens.
void fit_readings(measure::SweepPoint& point);

// Reads and summarises; empty if it was stopped. `positions`: where summaries by position go, if anywhere.
std::vector<results::Row> run_reading(const measure::SweepPoint& point, const measure::RunControl& control,
                                      const measure::Passages& passages, results::ResultsFolder* positions);

}  // namespace kv::experiments
