#include "harness/cli/answers.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "harness/io/bytes.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"

namespace kv::cli {
namespace {

using Cell = results::Row;

using experiments::exactly;
using experiments::Measured;
using experiments::within;

const results::Estimate& pace_columns(const Cell& row) {
  const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
  return experiment && row[*experiment->pace] ? *experiment->pace : measure::kRatioP50;
}

// Time relative to the baseline's. Repetitions drift together, so ratios are more exact than times.
Measured pace_of(const Cell& row) {
  if (row[results::kVerdict] == "baseline" && (row[measure::kStepP50Us] || row[measure::kPrefillP50Us]))
    return exactly(1.0);
  return within(row, pace_columns(row));
}

// The time itself: only where baselines differ, whose ratios cannot be compared, as of sweeps that share a sweep point.
Measured time_of(const Cell& row) {
  if (row[measure::kStepP50Us]) return within(row, measure::kStepP50Us);
  return within(row, measure::kPrefillP50Us);
}

bool is_unreliable(const Cell* row) { return (*row)[results::kVerdict] == results::kUnreliable; }
bool is_noisy_baseline(const Cell* row) {
  return (*row)[results::kVerdict] == "baseline" && !(*row)[measure::kNoise].empty();
}

bool has_one_baseline(const Cells& cells) {
  return std::count_if(cells.begin(), cells.end(),
                       [](const Cell* row) { return (*row)[results::kVerdict] == "baseline"; }) <= 1;
}

// Bytes held, or for prefill, whose caches all hold the same prompt, scratch buffers.
Measured size_of(const Cell& row) {
  if (row[results::kPhase] != "prefill") return exactly(row[results::kHeldBytesPerToken]);
  return exactly(row[results::kBytesWorkspacePeak]
                     ? results::Number(static_cast<double>(*row[results::kBytesWorkspacePeak]))
                     : results::Number());
}

const experiments::ErrorMeasure& error_measure(const Cell& row) {
  const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
  return experiment ? *experiment->error : experiments::kOutputError;
}

// True unless the cell's error is known to be too large for its time or size to be worth naming.
bool keeps_limit(const Cell& row) {
  const experiments::ErrorMeasure& error = error_measure(row);
  return error.measured(row).value.value_or(0) <= error.limit;
}

Measured error_of(const Cell& row) { return error_measure(row).measured(row); }
std::string error_in_short(const Cell& row) { return error_measure(row).in_short(row); }
std::string error_text(const Cell& row) { return error_measure(row).text(row); }

std::string pace_text(const Cell& row) {
  if (row[results::kVerdict] == "baseline") return "the baseline itself";
  const Measured pace = pace_of(row);
  return std::string(pace_columns(row).heading) + " " +
         (pace.low == pace.high ? number(pace.value, "%.2f")
                                : with_interval(pace.value, pace.low, pace.high, "%.2f"));
}

std::string size_text(const Cell& row) {
  const Measured size = size_of(row);
  if (row[results::kPhase] == "prefill")
    return io::human_bytes(static_cast<int64_t>(*size.value)) + " workspace";
  const std::string layers = experiments::layers_text(row, "");
  return number(size.value, "%.0f") + " bytes/token" + (layers.empty() ? "" : ", " + layers);
}

struct Question {
  std::string_view name;
  Measured (*measured)(const Cell&);
  std::string (*answer)(const Cell&);
};
constexpr std::array kQuestions{Question{"fastest", pace_of, pace_text},
                                Question{"smallest", size_of, size_text},
                                Question{"most exact", error_of, error_text}};

// The variant with the smallest value, "+ n" if n others are tied: equal, or with an interval that reaches it. Null
// if none was measured.
const Cell* best_of(const Cells& cells, const Question& question, int& as_good) {
  const Cell* best = nullptr;
  for (const Cell* row : cells) {
    const Measured mine = question.measured(*row);
    if (mine.value && (!best || *mine.value < *question.measured(*best).value)) best = row;
  }
  as_good = 0;
  for (const Cell* row : cells) {
    const Measured mine = question.measured(*row);
    as_good += row != best && mine.value && *mine.low <= *question.measured(*best).high;
  }
  return best;
}

std::vector<Strings> answer_rows(const std::string& point, const Cells& all) {
  std::vector<Strings> rows;
  for (const Answer& answer : answers_at(all)) {
    if (!answer.best) {
      rows.push_back({rows.empty() ? point : "", answer.question, "-", "-", answer.text});
      continue;
    }
    const Cell& best = *answer.best;
    rows.push_back({rows.empty() ? point : "", answer.question,
                    row_name(best) + (answer.as_good ? " + " + std::to_string(answer.as_good) : ""),
                    error_in_short(best), answer.text});
  }
  return rows;
}

// "decode, 2048 tokens", with its workload if several are shown, or its number among them.
std::string point_text(const Cell& row, size_t shown, size_t points) {
  using results::text_of;
  return row[results::kExperiment] +
         (shown < points ? " (1 of " + std::to_string(points) + ")"
          : points > 1   ? " " + row[results::kWorkload]
                         : "") +
         ", " + length_text(row) + own_axes(row);
}

// The sweep points of the experiment's longest length.
std::vector<Cells> longest_points(const Cells& cells) {
  results::Integer longest;
  for (const Cell* row : cells) longest = std::max(longest, (*row)[results::kSeqLen]);
  Cells there;
  for (const Cell* row : cells) {
    if ((*row)[results::kSeqLen] == longest) there.push_back(row);
  }
  std::vector<Cells> points;
  for (auto& [name, own] : grouped(there, sweep_point_name)) points.push_back(own);
  return points;
}

}  // namespace

std::vector<Answer> answers_at(const Cells& all) {
  Cells cells, within;
  for (const Cell* row : all) {
    if ((*row)[results::kStatus] != results::Status::kOk || results::is_aa_test(*row) ||
        !(*row)[results::kOracle].empty())
      continue;
    if ((*row)[results::kVerdict] == results::kUntestedVerdict) continue;
    cells.push_back(row);
    if (keeps_limit(*row)) within.push_back(row);
  }
  std::vector<Answer> found;
  for (const Question& question : kQuestions) {
    if (question.measured == pace_of && std::ranges::any_of(cells, is_unreliable)) {
      found.push_back({std::string(question.name),
                       nullptr,
                       0,
                       {},
                       {},
                       std::ranges::any_of(cells, is_noisy_baseline)
                           ? "not said: the baseline is noisy"
                           : "not said: the baseline differs from itself"});
      continue;
    }
    int as_good = 0;
    const bool limited = question.measured != error_of && within.size() < cells.size();
    Question ranked = question;
    if (question.measured == pace_of && !has_one_baseline(cells)) ranked.measured = time_of;
    const Cell* best = best_of(limited ? within : cells, ranked, as_good);
    if (!best) continue;
    found.push_back(
        {std::string(question.name) + (limited ? " of " + std::string(error_measure(*best).limit_text) : ""),
         best, as_good, question.measured(*best), error_of(*best), question.answer(*best)});
  }
  return found;
}

std::string beyond_limit_lines(const Cells& cells) {
  std::string text;
  for (const auto& [name, own] : grouped(cells, [](const Cell& row) { return row[results::kExperiment]; })) {
    Cells left_out;
    for (const Cells& point : longest_points(own))
      std::ranges::copy_if(point, std::back_inserter(left_out), [](const Cell* row) {
        return (*row)[results::kStatus] == results::Status::kOk && !keeps_limit(*row);
      });
    if (left_out.empty()) continue;
    const Cell& first = *left_out.front();
    text += "Limit: fastest and smallest are sought among caches of " +
            std::string(error_measure(first).limit_text) +
            ", as one that errs more cannot replace the full cache; " + std::to_string(left_out.size()) +
            " at the longest length are left out, as " + first[results::kCell] + ": " + error_text(first) +
            "\n";
  }
  return text;
}

std::string answers(const Cells& cells, size_t width, size_t most_lines) {
  std::vector<std::vector<Cells>> experiments;
  size_t points = 0;
  for (const auto& [name, own] : grouped(cells, [](const Cell& row) { return row[results::kExperiment]; })) {
    experiments.push_back(longest_points(own));
    points += experiments.back().size();
  }
  const bool all = 1 + points * kQuestions.size() <= most_lines;
  std::vector<Strings> table{{"at the longest length", "is", "variant (+ others as good)", "error", "value"}};
  for (const std::vector<Cells>& own : experiments) {
    const size_t shown = all ? own.size() : 1;
    for (const Cells& point : std::span(own).first(shown)) {
      const std::string name = point_text(*point.front(), shown, own.size());
      for (Strings& row : answer_rows(name, point)) table.push_back(std::move(row));
    }
  }
  constexpr size_t kNarrow =
      90;  // columns of a terminal: below, names are worth more than the error beside them
  return table.size() > 1 ? fitted(std::move(table), width, 3, width < kNarrow ? 20 : 10) : "";
}

}  // namespace kv::cli
