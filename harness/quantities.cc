#include "harness/quantities.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/stats.h"

namespace kv {

// Tables are read when they are first needed: growth.csv can be large.
struct Quantities::Folder {
  explicit Folder(std::filesystem::path at)
      : path(std::move(at)), cells(read_csv(path / "cells.csv", cell_columns())) {}

  const std::vector<Row>& samples(bool growth) {
    std::vector<Row>& rows = growth ? growth_ : samples_;
    if (rows.empty())
      rows = read_csv(path / (growth ? "growth.csv" : "samples.csv"),
                      growth ? growth_columns() : sample_columns());
    return rows;
  }

  std::filesystem::path path;
  std::vector<Row> cells;

 private:
  std::vector<Row> growth_, samples_;
};

namespace {

std::string described(const Quantity& q) {
  std::string text = "run '" + q.run + "'";
  for (const auto& [column, value] : q.where) text += ", " + column + " " + value;
  return text;
}

// "; variants there are contiguous, contiguous/q8_0": of the first column in which no cell is what is wanted.
std::string values_there(const std::vector<Row>& cells, const Quantity& q) {
  for (const auto& [column, wanted] : q.where) {
    std::string there;
    std::set<std::string> values;
    for (const Row& cell : cells) {
      for (const std::string& value : {cell.text(column), column == "variant" ? cell.text("series") : ""}) {
        if (!value.empty() && values.insert(value).second) there += (there.empty() ? "" : ", ") + value;
      }
    }
    if (!values.count(wanted)) return "; it has the " + column + " " + there;
  }
  return "";
}

const Row& cell_of(const std::vector<Row>& cells, const Quantity& q) {
  const Row* found = nullptr;
  for (const Row& cell : cells) {
    const bool null_ab = cell.text("verdict") == "null";
    const bool here = std::all_of(q.where.begin(), q.where.end(), [&](const auto& wanted) {
      // A variant may be given as it was written, or as it is printed.
      return cell.text(wanted.first) == wanted.second ||
             (wanted.first == "variant" && cell.text("series") == wanted.second);
    });
    if (null_ab || !here) continue;
    if (found)
      throw std::invalid_argument("several cells are " + described(q) + ": " + found->text("cell") + " and " +
                                  cell.text("cell"));
    found = &cell;
  }
  if (!found) throw std::invalid_argument("no cell is " + described(q) + values_there(cells, q));
  if (found->text("status") != "ok")
    throw NotMeasured(found->text("cell") + ": " + found->text("status") + ": " + found->text("reason"));
  return *found;
}

double increases(const std::vector<double>& samples) {
  double count = 0;
  for (size_t i = 1; i < samples.size(); ++i) count += samples[i] > samples[i - 1];
  return count;
}

double taken(const std::string& take, const std::vector<double>& samples) {
  if (take == "sum") return std::accumulate(samples.begin(), samples.end(), 0.0);
  return take == "median" ? median(samples) : increases(samples);
}

double required(const Row& row, const std::string& column) {
  const auto value = row.number(column);
  if (!value) throw NotMeasured(row.text("cell") + ": " + column + " is empty");
  return *value;
}

std::optional<ConfidenceInterval> interval_beside(const Row& cell, const std::string& metric) {
  const auto columns = cell_columns();
  const std::string low = metric + "_ci_low", high = metric + "_ci_high";
  if (std::none_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == low; }))
    return std::nullopt;
  if (!cell.number(low) || !cell.number(high)) return std::nullopt;
  return ConfidenceInterval{*cell.number(low), *cell.number(high)};
}

}  // namespace

void Quantities::take_samples(Folder& folder, const Row& cell, const Quantity& q,
                              std::vector<double>& values) {
  const bool growth = cell.text("experiment") == "growth";
  std::map<int, std::vector<double>> repetitions;
  for (const Row& row : folder.samples(growth)) {
    const bool of_kind = growth || q.kind.empty() || row.text("kind") == q.kind;
    if (row.text("cell") == cell.text("cell") && of_kind)
      repetitions[static_cast<int>(required(row, "repetition"))].push_back(required(row, q.metric));
  }
  if (repetitions.empty())
    throw NotMeasured(cell.text("cell") + " has no samples" + (q.kind.empty() ? "" : " of kind " + q.kind));
  for (const auto& [number, samples] : repetitions) values.push_back(taken(q.take, samples));
}

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
    const Row& cell = cell_of(folder->cells, q);
    if (!q.take.empty()) {
      take_samples(*folder, cell, q, found.values);
      continue;
    }
    found.values.push_back(required(cell, q.metric));
    found.interval = interval_beside(cell, q.metric);
  }
  if (found.values.size() > 1) found.interval.reset();  // the seeds' spread says more
  return found;
}

}  // namespace kv
