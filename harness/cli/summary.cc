#include "harness/cli/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/answers/conclusion.h"
#include "harness/cli/cell_text.h"
#include "harness/cli/document.h"
#include "harness/cli/summary_tables.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/exposure.h"
#include "harness/measure/noise.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/table.h"

namespace kv::cli {
namespace {

using Groups = std::vector<std::pair<std::string, Cells>>;

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string aa_line(const Cells& cells) {
  int tests = 0, decided = 0;
  for (const results::Row* row : cells) {
    tests += results::is_aa_test(*row) && (*row)[measure::kRatioP50.low] && (*row)[measure::kRatioP50.high];
    decided += measure::differs_from_itself(*row);
  }
  if (tests == 0) return "";
  return "A/A test: " + std::to_string(decided) + " of " + std::to_string(tests) +
         " comparisons of the baseline with itself found a difference (5 % expected)\n";
}

// Reports how quiet the machine was; `warns`: only if most cells are noisy, and what to do about it.
std::string noise_line(const Cells& cells, bool warns) {
  int timed = 0, noisy = 0;
  std::optional<double> steal, others;
  const results::Row* first = nullptr;
  for (const results::Row* row : cells) {
    if (!(*row)[measure::kStepP50Us] && !(*row)[measure::kPrefillP50Us]) continue;
    ++timed;
    noisy += !(*row)[measure::kNoise].empty();
    if (!(*row)[measure::kNoise].empty() && !first) first = row;
    if ((*row)[measure::kStealShare]) steal = std::max(steal.value_or(0), *(*row)[measure::kStealShare]);
    if ((*row)[measure::kOthersShare]) others = std::max(others.value_or(0), *(*row)[measure::kOthersShare]);
  }
  if (timed == 0 || (warns && 2 * noisy <= timed)) return "";
  if (warns)
    return std::to_string(noisy) + " of " + std::to_string(timed) +
           " timed cells are noisy, so these times say little. Close other programs, leave cores free "
           "(--threads), take more repetitions (--set measure.repetitions=21), or measure at another time.";
  std::string text = "Noise: other processes took at most " + percent(others) +
                     " of the processors, the hypervisor " + percent(steal) + "; " + std::to_string(noisy) +
                     " of " + std::to_string(timed) + " timed cells are noisy";
  return text + (first ? ", such as " + (*first)[results::kCell] + ": " + (*first)[measure::kNoise] : "") +
         "\n";
}

// Counts the cells whose attention was faster than the reads or multiply-adds that are its ceiling. The roofline is the slower
// of both, so its share is beyond its limit whenever one of theirs is.
std::string ceiling_line(const Cells& cells) {
  int shares = 0, beyond = 0;
  double most = 0.0;
  for (const results::Row* row : cells) {
    const results::Number& share = (*row)[measure::kBoundShare];
    if (!share) continue;
    ++shares;
    beyond += *share > measure::kMostHotShare;
    most = std::max(most, *share);
  }
  if (beyond == 0) return "";
  return "Ceiling: " + std::to_string(beyond) + " of " + std::to_string(shares) +
         " cells ran faster than the measured hardware limit (up to " + percent(most) +
         "), so the limit was measured too low there: ignore their ceiling_share and bound_share\n";
}

// Counts the cells that could not be measured, with the first reason.
std::string left_out_line(const Cells& cells) {
  size_t ok = 0;
  std::string counts;
  const results::Row* first = nullptr;
  for (const auto& [status, own] :
       grouped(cells, [](const results::Row& row) { return results::text_of(row[results::kStatus]); })) {
    if ((*own.front())[results::kStatus] == results::Status::kOk) {
      ok = own.size();
      continue;
    }
    counts += ", " + std::to_string(own.size()) + " " + status;
    if (!first) first = own.front();
  }
  if (!first) return "";
  return std::to_string(ok) + " of " + std::to_string(cells.size()) + " cells measured" + counts +
         ", such as " + (*first)[results::kCell] + ": " + (*first)[results::kReason] + "\n";
}

// Names variants that "win" because their policy evicted nothing.
std::string keeps_all_line(const Cells& cells) {
  const auto idle = [](const results::Row* row) { return (*row)[results::kKeepsAll] == 1; };
  const auto first = std::find_if(cells.begin(), cells.end(), idle);
  if (first == cells.end()) return "";
  return "Warning: " + std::to_string(std::count_if(cells.begin(), cells.end(), idle)) + " of " +
         std::to_string(cells.size()) +
         " cells keep every token because their budget covers the whole sequence [keeps all], such as " +
         (**first)[results::kCell] + "\n";
}

// Names variants whose rows the text was too short to expose: nothing else is said of their quality.
std::string untested_line(const Cells& cells) {
  std::string text;
  int64_t untested = 0;
  for (const results::Row* row : cells) {
    if ((*row)[results::kVerdict] != results::kUntestedVerdict || untested++ > 0) continue;
    text = results::label_of(*row) + " " + measure::untested_text(*row);
  }
  if (untested == 0) return "";
  return "Untested: " + std::to_string(untested) + " of " + std::to_string(cells.size()) +
         " cells, such as " + text + "\n";
}

// The cost of functions in Python.
std::string calls_line(const Cells& cells) {
  int64_t count = 0;
  double us = 0.0;
  for (const results::Row* row : cells) {
    count += (*row)[measure::kCalls].value_or(0);
    us += static_cast<double>((*row)[measure::kCalls].value_or(0)) * (*row)[measure::kCallUs].value_or(0.0);
  }
  if (count == 0) return "";
  return "Functions in Python: " + std::to_string(count) + " calls of " +
         experiments::format("%.0f", us / static_cast<double>(count)) +
         " us on average [policy_call_us]; no time of a cache includes them\n";
}

// Sentences of experiments about all of their cells.
std::string sentences(const Cells& cells) {
  std::string text;
  for (const auto& [name, own] :
       grouped(cells, [](const results::Row& row) { return row[results::kExperiment]; })) {
    const experiments::Experiment* experiment = experiments::find_experiment(name);
    if (experiment && experiment->sentence) text += experiment->sentence(own);
  }
  return text;
}

// How to have the smallest cache of the last experiment in serving engines.
std::string engines_line(const Cells& cells) {
  if (cells.empty()) return "";
  for (const answers::Answer& answer : answers::answers_at(answers::points_of(cells).back())) {
    if (!answer.question.starts_with("smallest") || !answer.best) continue;
    const std::string& commands = (*answer.best)[results::kEngines];
    if (!commands.empty()) return "Commands for " + results::label_of(*answer.best) + ": " + commands + "\n";
  }
  return "";
}

// Peers' bytes are counted differently from caches'.
std::string peers_line(const Cells& cells) {
  const auto is_peer = [](const results::Row* row) {
    return (*row)[measure::kPeerBytesReported] && !(*row)[results::kHeldBytesPerToken];
  };
  return std::any_of(cells.begin(), cells.end(), is_peer)
             ? "* other engines (sweep.peers) report their own bytes; peer_ratio_p50 in cells.csv compares "
               "each with kvlab's variant of the same bits\n"
             : "";
}

std::string point_tables(const Groups& points, size_t width) {
  std::string text;
  for (const auto& [name, own] : points) text += "\n" + wrapped(name, width) + sweep_point_table(own, width);
  return text;
}

// One row a variant. A single experiment gets at least the rows that fit.
std::string range_tables(const Groups& experiments, size_t width, size_t most_lines) {
  constexpr size_t kOwnLines = 4;  // blank line, name, header, number of omitted rows
  const size_t most_rows =
      experiments.size() == 1 ? most_lines - std::min(most_lines, kOwnLines) : size_t{1} << 30;
  std::string text;
  for (const auto& [name, own] : experiments)
    text += "\n" + name + ": ranges over a variant's cells\n" + experiment_table(own, width, most_rows);
  return text;
}

using Json = nlohmann::ordered_json;

Json json_of(const experiments::Measured& measured) {
  if (!measured.value) return nullptr;
  Json interval;
  if (measured.low && measured.high && *measured.low < *measured.high)
    interval = {*measured.low, *measured.high};
  return {{"value", *measured.value}, {"interval", interval}};
}

Json answers_of(std::span<const results::Row> rows) {
  Cells cells;
  for (const results::Row& row : rows) cells.push_back(&row);
  Json all = Json::array();
  for (const Cells& own : answers::points_of(cells)) {
    for (const answers::Answer& answer : answers::answers_at(own))
      all.push_back({{"sweep_point", sweep_point_name(*own.front())},
                     {"question", answer.question},
                     {"cell", answer.best ? Json((*answer.best)[results::kCell]) : Json()},
                     {"variant", answer.best ? Json((*answer.best)[results::kVariant]) : Json()},
                     {"as_good", answer.as_good},
                     {"value", json_of(answer.value)},
                     {"error", json_of(answer.error)},
                     {"text", answer.text}});
  }
  return all;
}

}  // namespace

std::string summary(std::span<const results::Row> rows, const SummaryOptions& options) {
  Cells cells;
  for (const results::Row& row : rows) cells.push_back(&row);
  std::string end;
  for (const std::string& line :
       {left_out_line(cells), keeps_all_line(cells), untested_line(cells), beyond_limit_lines(cells),
        sentences(cells), calls_line(cells), engines_line(cells), options.also, peers_line(cells),
        aa_line(cells), noise_line(cells, false), ceiling_line(cells)}) {
    if (!line.empty()) end += wrapped(line, options.width);
  }
  if (!end.empty()) end = "\n" + end;
  std::string warning = noise_line(cells, true);
  if (!warning.empty()) warning = "\n" + wrapped(warning, options.width);
  const Groups points = grouped(cells, sweep_point_name);
  const std::string pointer =
      options.more.empty()
          ? ""
          : wrapped(std::to_string(points.size()) + " sweep points have a table each: " + options.more,
                    options.width);
  const size_t room =
      kSummaryLines - std::min(kSummaryLines - 1, lines_of(warning + end) + lines_of(pointer) + 1);
  const std::string answer = warning + "\n" + answers(cells, options.width, room);
  constexpr size_t kOwnLines = 3;  // blank line, name, header
  if (options.full || lines_of(answer + end) + cells.size() + kOwnLines * points.size() <= kSummaryLines) {
    const std::string text = answer + point_tables(points, options.width) + end;
    if (options.full || lines_of(text) <= kSummaryLines) return text;
  }
  const std::string ranges =
      range_tables(grouped(cells, [](const results::Row& row) { return row[results::kExperiment]; }),
                   options.width, room - std::min(room, lines_of(answer)));
  const bool fits = lines_of(answer + ranges + end + pointer) <= kSummaryLines;
  return answer + (fits ? ranges : "") + end + pointer;
}

size_t summary_width() { return std::min(kSummaryWidth, terminal_width()); }

std::string summary_json(std::span<const results::Row> cells, const std::string& folder, bool finished) {
  Json status = Json::object();
  for (const results::Row& row : cells) {
    Json& count = status[results::text_of(row[results::kStatus])];
    count = count.is_null() ? 1 : count.get<int>() + 1;
  }
  const Json json{{"results", folder},
                  {"finished", finished},
                  {"status", status},
                  {"answers", answers_of(cells)},
                  {"cells", Json::parse(results::json_text(experiments::cell_table(), cells))}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kv::cli
