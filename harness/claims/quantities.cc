#include "harness/claims/quantities.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/math/stats.h"
#include "harness/results/csv.h"
#include "harness/results/side_results.h"

namespace kv::claims {

using results::CellResult;

// Tables are read when they are first needed: growth.csv can be large.
struct Quantities::Folder {
  explicit Folder(std::filesystem::path at)
      : path(std::move(at)), cells(results::read_csv(path / "cells.csv", results::cell_schema())) {}

  const std::vector<results::SampleResult>& samples() {
    if (samples_.empty()) samples_ = results::read_csv(path / "samples.csv", results::sample_schema());
    return samples_;
  }
  const std::vector<results::GrowthResult>& growth() {
    if (growth_.empty()) growth_ = results::read_csv(path / "growth.csv", results::growth_schema());
    return growth_;
  }

  std::filesystem::path path;
  std::vector<CellResult> cells;

 private:
  std::vector<results::SampleResult> samples_;
  std::vector<results::GrowthResult> growth_;
};

namespace {

std::string described(const Quantity& q) {
  std::string text = "run '" + q.run + "'";
  for (const auto& [column, value] : q.where) text += ", " + column + " " + value;
  return text;
}

// "; variants there are contiguous, contiguous/q8_0": of the first column in which no cell is what is wanted.
std::string values_there(const std::vector<CellResult>& cells, const Quantity& q) {
  for (const auto& [column, wanted] : q.where) {
    std::string there;
    std::set<std::string> values;
    for (const CellResult& cell : cells) {
      const std::string value_there = results::cell_schema().text(cell, column);
      for (const std::string& value : {value_there, column == "variant" ? cell.series : ""}) {
        if (!value.empty() && values.insert(value).second) there += (there.empty() ? "" : ", ") + value;
      }
    }
    if (!values.count(wanted)) return "; it has the " + column + " " + there;
  }
  return "";
}

const CellResult& cell_of(const std::vector<CellResult>& cells, const Quantity& q) {
  const CellResult* found = nullptr;
  for (const CellResult& cell : cells) {
    const bool here = std::all_of(q.where.begin(), q.where.end(), [&](const auto& wanted) {
      // A variant may be given as it was written, or as it is printed.
      return results::cell_schema().text(cell, wanted.first) == wanted.second ||
             (wanted.first == "variant" && cell.series == wanted.second);
    });
    if (cell.is_aa_test() || !here) continue;
    if (found)
      throw std::invalid_argument("several cells are " + described(q) + ": " + found->cell + " and " +
                                  cell.cell);
    found = &cell;
  }
  if (!found) throw std::invalid_argument("no cell is " + described(q) + values_there(cells, q));
  if (found->status != results::Status::kOk)
    throw NotMeasured(found->cell + ": " + results::text_of(found->status) + ": " + found->reason);
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

template <class Row>
double required(const results::Schema<Row>& schema, const Row& row, const std::string& column) {
  const results::Number value = schema.number(row, column);
  if (!value) throw NotMeasured(row.cell + ": " + column + " is empty");
  return *value;
}

std::optional<math::ConfidenceInterval> interval_beside(const CellResult& cell, const std::string& metric) {
  const auto* low = results::cell_schema().find(metric + "_ci_low");
  const auto* high = results::cell_schema().find(metric + "_ci_high");
  if (!low || !high || !low->number(cell) || !high->number(cell)) return std::nullopt;
  return math::ConfidenceInterval{*low->number(cell), *high->number(cell)};
}

// What is taken of each repetition of a cell's samples, as far as they are `wanted`.
template <class Row, class Wanted>
std::vector<double> take_samples(const results::Schema<Row>& schema, const std::vector<Row>& rows,
                                 const CellResult& cell, const Quantity& q, Wanted wanted) {
  std::map<int64_t, std::vector<double>> repetitions;
  for (const Row& row : rows) {
    if (row.cell != cell.cell || !wanted(row)) continue;
    const auto repetition = static_cast<int64_t>(required(schema, row, "repetition"));
    repetitions[repetition].push_back(required(schema, row, q.metric));
  }
  if (repetitions.empty())
    throw NotMeasured(cell.cell + " has no samples" + (q.kind.empty() ? "" : " of kind " + q.kind));
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
    const CellResult& cell = cell_of(folder->cells, q);
    if (!q.take.empty()) {
      const auto of_kind = [&](const results::SampleResult& s) { return q.kind.empty() || s.kind == q.kind; };
      const auto every = [](const results::GrowthResult&) { return true; };
      const std::vector<double> values =
          cell.experiment == "growth"
              ? take_samples(results::growth_schema(), folder->growth(), cell, q, every)
              : take_samples(results::sample_schema(), folder->samples(), cell, q, of_kind);
      found.values.insert(found.values.end(), values.begin(), values.end());
      continue;
    }
    found.values.push_back(required(results::cell_schema(), cell, q.metric));
    found.interval = interval_beside(cell, q.metric);
  }
  if (found.values.size() > 1) found.interval.reset();  // the seeds' spread says more
  return found;
}

}  // namespace kv::claims
