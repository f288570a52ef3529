#include <nlohmann/json.hpp>

#include "harness/answers/conclusion.h"
#include "harness/experiments/break_even.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/hash.h"
#include "harness/measure/noise.h"
#include "harness/measure/time_columns.h"
#include "harness/results/append_file.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::answers {
namespace {

using Json = nlohmann::ordered_json;

template <class Holds>
Json names_of(const Cells& cells, Holds holds) {
  Json names = Json::array();
  for (const Row* row : cells)
    if (holds(*row)) names.push_back((*row)[results::kCell]);
  return names;
}

Json json_of(const Judged& judged) {
  Json json{{"cell", (*judged.row)[results::kCell]}};
  for (const auto& [name, text] : {std::pair("told", &judged.told), std::pair("front", &judged.front),
                                   std::pair("place", &judged.place), std::pair("note", &judged.note)})
    if (!text->empty()) json[name] = *text;
  return json;
}

Json measures_of(const Finding& finding) {
  Cells rows;
  for (const Judged& judged : finding.ranked) rows.push_back(judged.row);
  constexpr std::array kNames{"time", "rate", "error", "bytes"};
  Json json = Json::object();
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (const Measure* measure = measure_of(kKinds[i], rows)) json[kNames[i]] = measure->column;
  return json;
}

Json json_of(const Finding& finding) {
  const Row& first = *finding.cells.front();
  const auto is_timed = [](const Row& row) {
    return row[measure::kStepP50Us] || row[measure::kPrefillP50Us];
  };
  Json ranked = Json::array(), tests = Json::array();
  for (const Judged& judged : finding.ranked) ranked.push_back(json_of(judged));
  for (const Test& test : finding.tests) tests.push_back({{"text", test.text}, {"differs", test.differs}});
  return {
      {"host", first[results::kHost]},
      {"limit", error_of(first).column},
      {"measures", measures_of(finding)},
      {"sentences", finding.sentences},
      {"tests", tests},
      {"timed", names_of(finding.cells, is_timed).size()},
      {"noisy",
       names_of(finding.cells, [&](const Row& row) { return is_timed(row) && !row[measure::kNoise].empty(); })
           .size()},
      {"cells", names_of(finding.cells, [](const Row&) { return true; })},
      {"unreliable", names_of(finding.cells,
                              [](const Row& row) { return row[results::kVerdict] == results::kUnreliable; })},
      {"beyond_limit", names_of(finding.cells, [](const Row& row) { return !keeps_limit(row); })},
      {"ranked", ranked}};
}

Json json_of(const experiments::CacheLine& line) {
  return {{"variant", (*line.row)[results::kVariant]},
          {"intercept_us", line.line.intercept},
          {"us_per_token", line.line.slope}};
}

// The crossings of a group of cells, which are those of these sweep points.
Json crossings_json(const Cells& cells) {
  Json crossings = Json::array();
  for (const experiments::BreakEven& pair : experiments::crossings_of(cells))
    crossings.push_back({{"before", json_of(pair.before)},
                         {"after", json_of(pair.after)},
                         {"tokens", pair.crossing.at},
                         {"interval", {pair.crossing.interval.low, pair.crossing.interval.high}}});
  return {{"cell", (*cells.front())[results::kCell]},
          {"host", (*cells.front())[results::kHost]},
          {"crossings", crossings}};
}

}  // namespace

std::vector<Row> read_cells(const std::filesystem::path& folder, bool skips) {
  const std::filesystem::path file = folder / "cells.csv";
  if (!std::filesystem::exists(file))
    throw std::invalid_argument(folder.string() + " is not a results folder: it has no cells.csv");
  std::vector<Row> rows = results::read_csv(file, experiments::cell_table(), skips);
  Cells cells;
  for (const Row& row : rows) cells.push_back(&row);
  for (const Cells& point : points_of(cells)) {
    std::vector<Row*> own;
    for (const Row* row : point) own.push_back(&rows[static_cast<size_t>(row - rows.data())]);
    measure::withhold_verdicts(own);
  }
  return rows;
}

std::string answers_json(const std::filesystem::path& folder) {
  const std::vector<Row> rows = read_cells(folder, true);
  Cells cells;
  for (const Row& row : rows) cells.push_back(&row);
  Json limits = Json::object(), points = Json::array(), break_even = Json::array();
  for (const auto* error :
       {&experiments::kOutputError, &experiments::kDivergenceError, &experiments::kLossError})
    limits[std::string(error->column)] = {{"most", error->limit}, {"said", error->said}};
  for (const Finding& finding : conclude(cells)) points.push_back(json_of(finding));
  for (const Cells& own : experiments::steady_groups(cells)) break_even.push_back(crossings_json(own));
  const Json json{{"format", 1},
                  {"of", io::hash_text(io::hash_of_file(folder / "cells.csv"))},
                  {"limits", limits},
                  {"points", points},
                  {"break_even", break_even}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_answers(const std::filesystem::path& folder) {
  results::write_whole(folder / "answers.json", answers_json(folder));
}

}  // namespace kv::answers
