#include "harness/claims/quantities.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/experiments/written_columns.h"
#include "harness/math/stats.h"
#include "harness/measure/sample_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/csv.h"
#include "harness/results/row.h"

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

// "; variants there are contiguous, contiguous/q8_0": of the first column in which no cell is what is wanted.
std::string values_there(const std::vector<results::Row>& cells, const Quantity& q) {
  for (const auto& [column, wanted] : q.where) {
    std::string there;
    std::set<std::string> values;
    for (const results::Row& cell : cells) {
      const std::string value_there = cell.text(experiments::cell_table().at(column));
      for (const std::string& value : {value_there, column == "variant" ? cell[results::kSeries] : ""}) {
        if (!value.empty() && values.insert(value).second) there += (there.empty() ? "" : ", ") + value;
      }
    }
    if (!values.count(wanted)) return "; it has the " + column + " " + there;
  }
  return "";
}

const results::Row& cell_of(const std::vector<results::Row>& cells, const Quantity& q) {
  const results::Row* found = nullptr;
  for (const results::Row& cell : cells) {
    const bool here = std::all_of(q.where.begin(), q.where.end(), [&](const auto& wanted) {
      // A variant may be given as it was written, or as it is printed.
      return cell.text(experiments::cell_table().at(wanted.first)) == wanted.second ||
             (wanted.first == "variant" && cell[results::kSeries] == wanted.second);
    });
    if (results::is_aa_test(cell) || !here) continue;
    if (found)
      throw std::invalid_argument("several cells are " + described(q) + ": " + (*found)[results::kCell] +
                                  " and " + cell[results::kCell]);
    found = &cell;
  }
  if (!found) throw std::invalid_argument("no cell is " + described(q) + values_there(cells, q));
  if ((*found)[results::kStatus] != results::Status::kOk)
    throw NotMeasured((*found)[results::kCell] + ": " + results::text_of((*found)[results::kStatus]) + ": " +
                      (*found)[results::kReason]);
  return *found;
}

double increases(const std::vector<double>& samples) {
  double count = 0;
  for (size_t i = 1; i < samples.size(); ++i) count += samples[i] > samples[i - 1];
  return count;
}

double taken(const std::string& take, const std::vector<double>& samples) {
  if (take == "sum") return std::accumulate(samples.begin(), samples.end(), 0.0);
  return take == "median" ? math::median(samples) : increases(samples);
}

double required(const results::Row& row, const results::AnyColumn& column) {
  const results::Number value = row.number(column);
  if (!value) throw NotMeasured(row[results::kCell] + ": " + std::string(column.name) + " is empty");
  return *value;
}

std::optional<math::ConfidenceInterval> interval_beside(const results::Row& cell, const std::string& metric) {
  const results::AnyColumn* low = experiments::cell_table().find(metric + "_ci_low");
  const results::AnyColumn* high = experiments::cell_table().find(metric + "_ci_high");
  if (!low || !high || !cell.number(*low) || !cell.number(*high)) return std::nullopt;
  return math::ConfidenceInterval{*cell.number(*low), *cell.number(*high)};
}

// What the quantity takes of each repetition of a cell's steps, those of its kind.
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

void Quantities::add(const std::string& run, std::vector<std::filesystem::path> folders) {
  for (auto& folder : folders) runs_[run].push_back(std::make_shared<Folder>(std::move(folder)));
}

const std::vector<std::shared_ptr<Quantities::Folder>>& Quantities::folders(const std::string& run) const {
  const auto found = runs_.find(run);
  if (found == runs_.end()) throw NotMeasured("the run '" + run + "' was stopped");
  return found->second;
}

Measured Quantities::find(const Quantity& q) const {
  Measured found;
  for (const auto& folder : folders(q.run)) {
    const results::Row& cell = cell_of(folder->cells, q);
    if (!q.take.empty()) {
      const std::vector<double> values = take_steps(folder->steps(), cell, q);
      found.values.insert(found.values.end(), values.begin(), values.end());
      continue;
    }
    found.values.push_back(required(cell, experiments::cell_table().at(q.metric)));
    found.interval = interval_beside(cell, q.metric);
  }
  if (found.values.size() > 1) found.interval.reset();  // the seeds' spread says more
  return found;
}

}  // namespace kv::claims
