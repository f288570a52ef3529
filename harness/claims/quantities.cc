#include "harness/claims/quantities.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/experiments/written_columns.h"
#include "harness/io/text.h"
#include "harness/measure/exposure.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::claims {

// Tables are read when they are first needed: growth.csv can be large.
struct Quantities::Folder {
  explicit Folder(std::filesystem::path at)
      : path(std::move(at)), cells(results::read_csv(path / "cells.csv", experiments::cell_table())) {}

  // Rows of the tables that time steps.
  const std::vector<results::Row>& steps() {
    if (steps_.empty()) steps_ = experiments::timed_steps(path);
    return steps_;
  }

  std::filesystem::path path;
  std::vector<results::Row> cells;

 private:
  std::vector<results::Row> steps_;
};

namespace {

std::string described(const Quantity& q) {
  std::string text = "run '" + q.run + "'";
  for (const auto& [column, value] : q.where) text += ", " + column + " " + value;
  return text;
}

// Texts of a cell's column; a variant may be given as the config writes it, or as it is printed.
std::set<std::string> texts_of(const results::Row& cell, const std::string& column) {
  std::set<std::string> texts{cell.text(experiments::cell_table().at(column))};
  if (column == results::kVariant.name) texts.insert(cell[results::kSeries]);
  return texts;
}

// "; it has the variant contiguous, contiguous/q8_0", for the first column in which no cell has the wanted text.
std::string values_there(const std::vector<results::Row>& cells, const Quantity& q) {
  for (const auto& [column, wanted] : q.where) {
    std::vector<std::string> there;
    for (const results::Row& cell : cells) {
      for (const std::string& text : texts_of(cell, column)) {
        if (!text.empty() && !std::ranges::count(there, text)) there.push_back(text);
      }
    }
    if (!std::ranges::count(there, wanted)) return "; it has the " + column + " " + io::joined(there);
  }
  return "";
}

const results::Row& cell_of(const std::vector<results::Row>& cells, const Quantity& q) {
  const results::Row* found = nullptr;
  for (const results::Row& cell : cells) {
    const bool here = std::ranges::all_of(
        q.where, [&](const auto& wanted) { return texts_of(cell, wanted.first).contains(wanted.second); });
    if (results::is_aa_test(cell) || !here) continue;
    if (found)
      throw std::invalid_argument("several cells are " + described(q) + ": " + (*found)[results::kCell] +
                                  " and " + cell[results::kCell]);
    found = &cell;
  }
  if (!found) throw std::invalid_argument("no cell is " + described(q) + values_there(cells, q));
  const results::Row& cell = *found;
  if (cell[results::kStatus] != results::Status::kOk)
    throw NotMeasured(cell[results::kCell] + ": " + results::text_of(cell[results::kStatus]) + ": " +
                      cell[results::kReason]);
  if (cell[results::kVerdict] == results::kUntestedVerdict && q.metric.find("bytes") == std::string::npos)
    throw NotMeasured(cell[results::kCell] + ": " + measure::untested_text(cell));
  return cell;
}

double taken(const std::string& take, const std::vector<double>& samples) {
  if (take == "median") return math::median(samples);
  if (take == "sum") return std::accumulate(samples.begin(), samples.end(), 0.0);
  double increases = 0;
  for (size_t i = 1; i < samples.size(); ++i) increases += samples[i] > samples[i - 1];
  return increases;
}

double required(const results::Row& row, const results::AnyColumn& column) {
  const results::Number value = row.number(column);
  if (!value) throw NotMeasured(row[results::kCell] + ": " + std::string(column.name) + " is empty");
  return *value;
}

std::optional<math::ConfidenceInterval> interval_beside(const results::Row& cell, const std::string& metric) {
  const results::AnyColumn* low = experiments::cell_table().find(interval_column(metric, "low"));
  const results::AnyColumn* high = experiments::cell_table().find(interval_column(metric, "high"));
  if (!low || !high || !cell.number(*low) || !cell.number(*high)) return std::nullopt;
  return math::ConfidenceInterval{*cell.number(*low), *cell.number(*high)};
}

// The median, sum or increases of each repetition of a cell's steps of the wanted kind.
std::vector<double> take_steps(const std::vector<results::Row>& steps, const results::Row& cell,
                               const Quantity& q) {
  const results::AnyColumn& column = *experiments::step_column(q.metric);
  std::map<int64_t, std::vector<double>> repetitions;
  for (const results::Row& row : steps) {
    if (row[results::kCell] != cell[results::kCell] || !(q.kind.empty() || row[measure::kKind] == q.kind))
      continue;
    repetitions[row[measure::kRepetition].value()].push_back(required(row, column));
  }
  if (repetitions.empty())
    throw NotMeasured(cell[results::kCell] + " has no samples" +
                      (q.kind.empty() ? "" : " of kind " + q.kind));
  std::vector<double> values;
  for (const auto& [number, samples] : repetitions) values.push_back(taken(q.take, samples));
  return values;
}

}  // namespace

std::string cell_column(const std::string& name) {
  const results::AnyColumn* column = experiments::cell_table().find(name);
  return column ? std::string(column->name) : "";
}

std::string interval_column(const std::string& metric, const std::string& end) {
  const std::string p50 = "_p50_us";
  if (!metric.ends_with(p50)) return metric + "_ci_" + end;
  return metric.substr(0, metric.size() - p50.size()) + "_ci_" + end + "_us";
}

std::string sample_column(const std::string& name) {
  const results::AnyColumn* column = experiments::step_column(name);
  return column ? std::string(column->name) : "";
}

void Quantities::add(const std::string& run, const std::vector<std::filesystem::path>& folders) {
  for (const auto& folder : folders) runs_[run].push_back(std::make_shared<Folder>(folder));
}

Measured Quantities::find(const Quantity& q) const {
  const auto run = runs_.find(q.run);
  if (run == runs_.end()) throw NotMeasured("the run '" + q.run + "' was stopped");
  Measured found;
  for (const auto& folder : run->second) {
    const results::Row& cell = cell_of(folder->cells, q);
    if (!q.take.empty()) {
      std::ranges::copy(take_steps(folder->steps(), cell, q), std::back_inserter(found.values));
      continue;
    }
    found.values.push_back(required(cell, experiments::cell_table().at(q.metric)));
    found.interval = interval_beside(cell, q.metric);
  }
  if (found.values.size() > 1) found.interval.reset();  // the seeds' spread says more
  return found;
}

}  // namespace kv::claims
