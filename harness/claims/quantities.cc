#include "harness/claims/quantities.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/io/csv.h"
#include "harness/io/text.h"
#include "harness/math/stats.h"
#include "harness/results/side_results.h"

namespace kv::claims {
namespace {

namespace fs = std::filesystem;

// A CSV file of a results folder, by its columns' names.
class Table {
 public:
  explicit Table(const fs::path& path) : csv_(io::read_csv(path)) {}
  const std::vector<io::CsvRecord>& rows() const { return csv_.records; }
  // Empty where there is no such column.
  std::string text(const io::CsvRecord& row, const std::string& column) const {
    const auto at = std::ranges::find(csv_.header, column);
    return at == csv_.header.end() ? "" : row[static_cast<size_t>(at - csv_.header.begin())];
  }
  std::optional<double> number(const io::CsvRecord& row, const std::string& column) const {
    results::Number value;
    results::parse(text(row, column), value);
    return value;
  }
  double required(const io::CsvRecord& row, const std::string& column) const {
    const std::optional<double> value = number(row, column);
    if (!value) throw NotMeasured(text(row, "cell") + ": " + column + " is empty");
    return *value;
  }

 private:
  io::CsvTable csv_;
};

// Texts of a cell's column; a variant may be given as the config writes it, or as it is printed.
std::set<std::string> texts_of(const Table& cells, const io::CsvRecord& cell, const std::string& column) {
  std::set<std::string> texts{cells.text(cell, column)};
  if (column == "variant") texts.insert(cells.text(cell, "series"));
  return texts;
}

std::string described(const Quantity& q) {
  std::string text = "run '" + q.run + "'";
  for (const auto& [column, value] : q.where) text += ", " + column + " " + value;
  return text;
}

// "; it has the variant contiguous, contiguous/q8_0", for the first column in which no cell has the wanted text.
std::string values_there(const Table& cells, const Quantity& q) {
  for (const auto& [column, wanted] : q.where) {
    std::vector<std::string> there;
    for (const io::CsvRecord& cell : cells.rows()) {
      for (const std::string& text : texts_of(cells, cell, column)) {
        if (!text.empty() && !std::ranges::count(there, text)) there.push_back(text);
      }
    }
    if (!std::ranges::count(there, wanted)) return "; it has the " + column + " " + io::joined(there);
  }
  return "";
}

const io::CsvRecord& cell_of(const Table& cells, const Quantity& q) {
  const io::CsvRecord* found = nullptr;
  for (const io::CsvRecord& cell : cells.rows()) {
    const bool here = std::ranges::all_of(q.where, [&](const auto& wanted) {
      return texts_of(cells, cell, wanted.first).contains(wanted.second);
    });
    if (!here || cells.text(cell, "verdict") == results::CellResult::kAaVerdict) continue;
    if (found)
      throw std::invalid_argument("several cells are " + described(q) + ": " + cells.text(*found, "cell") +
                                  " and " + cells.text(cell, "cell"));
    found = &cell;
  }
  if (!found) throw std::invalid_argument("no cell is " + described(q) + values_there(cells, q));
  const std::string status = cells.text(*found, "status");
  if (status != results::text_of(results::Status::kOk))
    throw NotMeasured(cells.text(*found, "cell") + ": " + status + ": " + cells.text(*found, "reason"));
  return *found;
}

double taken(const std::string& take, const std::vector<double>& samples) {
  if (take == "median") return math::median(samples);
  if (take == "sum") return std::accumulate(samples.begin(), samples.end(), 0.0);
  double increases = 0;
  for (size_t i = 1; i < samples.size(); ++i) increases += samples[i] > samples[i - 1];
  return increases;
}

}  // namespace

// Tables are read when they are first needed: growth.csv can be large.
struct Quantities::Folder {
  const Table& table(const std::string& name) { return tables.try_emplace(name, path / name).first->second; }

  // The median, sum or increases of each repetition of a cell's samples, which are in one of two files.
  std::vector<double> taken_of(const std::string& cell, const Quantity& q) {
    std::map<double, std::vector<double>> repetitions;
    for (const char* file : {"samples.csv", "growth.csv"}) {
      if (!repetitions.empty() || !fs::exists(path / file)) continue;
      const Table& samples = table(file);
      for (const io::CsvRecord& row : samples.rows()) {
        if (samples.text(row, "cell") == cell && (q.kind.empty() || samples.text(row, "kind") == q.kind))
          repetitions[samples.required(row, "repetition")].push_back(samples.required(row, q.metric));
      }
    }
    if (repetitions.empty())
      throw NotMeasured(cell + " has no samples" + (q.kind.empty() ? "" : " of kind " + q.kind));
    std::vector<double> values;
    for (const auto& [number, in_order] : repetitions) values.push_back(taken(q.take, in_order));
    return values;
  }

  fs::path path;
  std::map<std::string, Table> tables = {};
};

std::string cell_column(const std::string& name) {
  const auto* column = results::cell_schema().find(name);
  return column ? std::string(column->name) : "";
}

std::string sample_column(const std::string& name) {
  if (const auto* column = results::sample_schema().find(name)) return std::string(column->name);
  const auto* column = results::growth_schema().find(name);
  return column ? std::string(column->name) : "";
}

void Quantities::add(const std::string& run, const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) runs_[run].push_back(std::make_shared<Folder>(Folder{folder}));
}

Measured Quantities::find(const Quantity& q) const {
  const auto run = runs_.find(q.run);
  if (run == runs_.end()) throw NotMeasured("the run '" + q.run + "' was stopped");
  Measured found;
  for (const auto& folder : run->second) {
    const Table& cells = folder->table("cells.csv");
    const io::CsvRecord& cell = cell_of(cells, q);
    if (!q.take.empty()) {
      std::ranges::copy(folder->taken_of(cells.text(cell, "cell"), q), std::back_inserter(found.values));
      continue;
    }
    found.values.push_back(cells.required(cell, q.metric));
    const auto low = cells.number(cell, q.metric + "_ci_low"),
               high = cells.number(cell, q.metric + "_ci_high");
    if (low && high) found.interval = {*low, *high};
  }
  if (found.values.size() > 1) found.interval.reset();  // the seeds' spread says more
  return found;
}

}  // namespace kv::claims
