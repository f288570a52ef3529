#include "harness/cli/compare.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "harness/cli/cell_text.h"
#include "harness/cli/commands.h"
#include "harness/cli/summary.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/json.h"
#include "harness/io/text.h"
#include "harness/math/medians.h"
#include "harness/measure/benchmark_json.h"

namespace kv::cli {
namespace {

constexpr size_t kMostRows = 8;  // the output stays within 20 lines

// A figure of a cell that may grow: its value before and after.
struct Change {
  std::string column;
  double before, after;
  double growth() const { return before == 0 ? (after > 0 ? INFINITY : 0.0) : after / before - 1.0; }
};

// A cell of both runs, or of one alone, whose other row is null.
struct Pair {
  const results::Row *before = nullptr, *after = nullptr;
  std::optional<math::Ratio> time = {};  // after / before
  double confidence = math::kConfidence;
  std::optional<Change> bytes = {}, error = {};  // the largest change of bytes; the experiment's own error
  std::vector<std::string> broken = {};          // names of passed limits

  math::ConfidenceInterval interval() const { return time->interval(confidence); }
  const std::string& cell() const { return (before ? *before : *after)[results::kCell]; }
  std::string status() const {
    return !after ? "missing" : !before ? "new" : results::text_of((*after)[results::kStatus]);
  }
  bool lost() const {
    return before && after && (*before)[results::kStatus] == results::Status::kOk &&
           (*after)[results::kStatus] != results::Status::kOk;
  }
  bool decided() const { return time && math::compare(interval()) != math::Verdict::kAmbiguous; }
  bool differs() const { return !before || !after || lost() || decided() || bytes || error; }
};

struct Limits {
  std::optional<double> slower, bytes, error;
  bool any() const { return slower || bytes || error; }
};

Limits parse_limits(const std::string& text) {
  Limits limits;
  struct Known {
    std::string_view name;
    double usual;
    std::optional<double>& limit;
  };
  const std::array known{Known{"slower", 1.05, limits.slower}, Known{"bytes", 0.0, limits.bytes},
                         Known{"error", 0.01, limits.error}};
  for (size_t from = 0; from < text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string word = text.substr(from, to - from), name = word.substr(0, word.find(':'));
    const auto found = std::ranges::find(known, name, &Known::name);
    double value = found == known.end() ? 0.0 : found->usual;
    bool good = found != known.end();
    if (good && name.size() < word.size()) {
      const char* end = word.data() + word.size();
      const auto [at, error] = std::from_chars(word.data() + name.size() + 1, end, value);
      good = error == std::errc() && at == end && std::isfinite(value) && value >= 0;
    }
    if (!good)
      throw std::invalid_argument("--fail-if '" + word +
                                  "': expected slower:RATIO, error:SHARE or bytes:SHARE, separated by ','");
    found->limit = value;
    from = to + 1;
  }
  return limits;
}

struct Run {
  explicit Run(const std::string& path) : folder(path) {
    if (!std::filesystem::exists(folder / "cells.csv"))
      throw std::invalid_argument(path + " is not a results folder: it has no cells.csv");
    cells = results::read_csv(folder / "cells.csv", experiments::cell_table());
    for (const results::Row& row : cells) {
      if (!by_key.emplace(row[results::kCell], &row).second)
        throw std::invalid_argument(path + " has '" + row[results::kCell] +
                                    "' of several machines; expected a run of one machine");
    }
    environment = results::environment_in(folder);
    const nlohmann::json benchmark = io::read_json(folder / "benchmark.json");
    if (benchmark.is_object()) times = measure::repetition_times(benchmark);
  }
  const std::vector<double>* times_of(const std::string& cell) const {
    for (const char* kind : {"", " prefill"}) {
      const auto found = times.find(cell + kind);
      if (found != times.end()) return &found->second;
    }
    return nullptr;
  }

  std::filesystem::path folder;
  std::vector<results::Row> cells;
  std::map<std::string, const results::Row*> by_key;
  nlohmann::json environment;
  measure::RepetitionTimes times;
};

// The change that grows most, or if none grows the one that shrinks most.
std::optional<Change> bytes_change(const results::Row& before, const results::Row& after) {
  std::optional<Change> largest;
  for (const results::IntegerColumn* column :
       {&results::kBytesPayload, &results::kBytesMetadata, &results::kBytesSlack,
        &results::kBytesWorkspacePeak, &results::kBytesDisk, &results::kBytesDevicePeak}) {
    const results::Integer a = before[*column], b = after[*column];
    if (!a || !b || *a == *b) continue;
    const Change change{std::string(column->name), static_cast<double>(*a), static_cast<double>(*b)};
    const bool more = largest && (change.growth() > 0) == (largest->growth() > 0)
                          ? std::abs(change.growth()) > std::abs(largest->growth())
                          : change.growth() > 0;
    if (!largest || more) largest = change;
  }
  return largest;
}

std::optional<Change> error_change(const results::Row& before, const results::Row& after) {
  const experiments::Experiment* experiment = experiments::find_experiment(before[results::kExperiment]);
  const experiments::ErrorMeasure& error = experiment ? *experiment->error : experiments::kOutputError;
  const results::Number a = error.measured(before).value, b = error.measured(after).value;
  if (!a || !b || *a == *b) return std::nullopt;
  return Change{"error", *a, *b};
}

std::vector<Pair> pairs_of(const Run& before, const Run& after) {
  std::vector<Pair> pairs;
  for (const results::Row& row : before.cells) {
    Pair& pair = pairs.emplace_back(Pair{.before = &row});
    const auto other = after.by_key.find(row[results::kCell]);
    if (other == after.by_key.end()) continue;
    pair.after = other->second;
    const auto *a = before.times_of(row[results::kCell]), *b = after.times_of(row[results::kCell]);
    if (a && b) pair.time = math::ratio_of_medians(*b, *a);
    pair.bytes = bytes_change(row, *pair.after);
    pair.error = error_change(row, *pair.after);
  }
  for (const results::Row& row : after.cells) {
    if (!before.by_key.contains(row[results::kCell])) pairs.push_back(Pair{.after = &row});
  }
  std::vector<double> p_values;
  for (const Pair& pair : pairs) {
    if (pair.time) p_values.push_back(pair.time->p_value());
  }
  const std::vector<double> confidences = math::holm_confidences(p_values);
  auto next = confidences.begin();
  for (Pair& pair : pairs) {
    if (pair.time) pair.confidence = *next++;
  }
  return pairs;
}

void judge(const Limits& limits, bool allow_missing, Pair& pair) {
  if (limits.any() && !pair.after && !allow_missing) pair.broken.push_back("missing");
  if (limits.any() && pair.lost()) pair.broken.push_back("status");
  if (limits.slower && pair.time && pair.interval().low > *limits.slower) pair.broken.push_back("slower");
  if (limits.bytes && pair.bytes && pair.bytes->growth() > *limits.bytes) pair.broken.push_back("bytes");
  if (limits.error && pair.error && pair.error->growth() > *limits.error) pair.broken.push_back("error");
}

std::string text_of(const Pair& pair, const std::optional<Change>& change) {
  if (!change) return pair.before && pair.after ? "same" : "-";
  return number(results::Number(change->before), "%.4g") + " -> " +
         number(results::Number(change->after), "%.4g");
}

std::string time_text(const Pair& pair) {
  if (!pair.before || !pair.after || pair.lost()) return pair.status();
  if (!pair.time) return "-";
  const math::ConfidenceInterval interval = pair.interval();
  return with_interval(pair.time->value, interval.low, interval.high, "%.3f");
}

nlohmann::json json_of(const std::optional<Change>& change) {
  if (!change) return nullptr;
  return {{"column", change->column}, {"before", change->before}, {"after", change->after}};
}

nlohmann::json json_of(const Pair& pair) {
  nlohmann::json time;
  if (pair.time)
    time = {{"ratio", pair.time->value},
            {"interval", {pair.interval().low, pair.interval().high}},
            {"confidence", pair.confidence},
            {"verdict", math::text_of(math::compare(pair.interval()))}};
  return {{"cell", pair.cell()},          {"status", pair.status()},      {"time", time},
          {"bytes", json_of(pair.bytes)}, {"error", json_of(pair.error)}, {"limits_passed", pair.broken}};
}

struct Counts {
  size_t slower = 0, faster = 0, ambiguous = 0, bytes = 0, error = 0, lost = 0, broken = 0, missing = 0,
         added = 0;
};
Counts count(const std::vector<Pair>& pairs) {
  Counts counts;
  for (const Pair& pair : pairs) {
    if (pair.time) {
      const math::Verdict verdict = math::compare(pair.interval());
      ++(verdict == math::Verdict::kSlower   ? counts.slower
         : verdict == math::Verdict::kFaster ? counts.faster
                                             : counts.ambiguous);
    }
    counts.bytes += pair.bytes.has_value();
    counts.error += pair.error.has_value();
    counts.lost += pair.lost();
    counts.broken += !pair.broken.empty();
    counts.missing += !pair.after;
    counts.added += !pair.before;
  }
  return counts;
}

// Cells beyond a limit first, then cells of one run alone and lost ones, then the largest changes of time.
std::vector<const Pair*> most_different(const std::vector<Pair>& pairs) {
  std::vector<const Pair*> chosen;
  for (const Pair& pair : pairs) {
    if (pair.differs() || !pair.broken.empty()) chosen.push_back(&pair);
  }
  const auto weight = [](const Pair* pair) {
    return std::tuple(!pair->broken.empty(), !pair->after, !pair->before || pair->lost(), pair->decided(),
                      pair->decided() ? std::abs(std::log(pair->time->value)) : 0.0);
  };
  std::ranges::stable_sort(chosen, [&](const Pair* a, const Pair* b) { return weight(a) > weight(b); });
  return chosen;
}

void print_text(const Run& before, const Run& after, const std::vector<Pair>& pairs, const Counts& counts) {
  const auto print = [](const std::string& line) {
    std::fputs(wrapped(line, summary_width()).c_str(), stdout);
  };
  print("Cells in both runs: " + std::to_string(before.cells.size() - counts.missing) +
        "; only in the first (missing): " + std::to_string(counts.missing) +
        "; only in the second (new): " + std::to_string(counts.added));
  const std::string differences = results::environment_differences(
      before.environment, after.environment,
      std::array{"/kvlab/git_commit", "/compiler", "/cpu/model", "/isa", "/device/name", "/threads"});
  if (!differences.empty()) print("Runs differ: " + differences);
  print("Time: " + std::to_string(counts.slower) + " slower, " + std::to_string(counts.faster) + " faster, " +
        std::to_string(counts.ambiguous) +
        " ambiguous (95 % confidence in all verdicts together, Holm's method). Bytes differ in " +
        std::to_string(counts.bytes) + " cells, errors in " + std::to_string(counts.error) + "; " +
        std::to_string(counts.lost) + " are no longer measured.");
  const std::vector<const Pair*> shown = most_different(pairs);
  if (shown.empty()) return;
  std::vector<Strings> rows{{"cell", "time ratio", "bytes", "error", "limits passed"}};
  for (size_t i = 0; i < std::min(shown.size(), kMostRows); ++i) {
    rows.push_back({shown[i]->cell(), time_text(*shown[i]), text_of(*shown[i], shown[i]->bytes),
                    text_of(*shown[i], shown[i]->error), io::joined(shown[i]->broken)});
  }
  std::fputs(("\n" + fitted(rows, summary_width())).c_str(), stdout);
  if (shown.size() > kMostRows)
    print(std::to_string(shown.size() - kMostRows) + " more cells differ; --json lists all");
}

}  // namespace

void add_options(CLI::App& app, CompareOptions& options) {
  app.add_option("before", options.before, "a results folder")->required();
  app.add_option("after", options.after, "a results folder of the same config")->required();
  app.add_option("--fail-if", options.fail_if,
                 "exit with 1 beyond limits, e.g. slower:1.05,error:0.01,bytes:0 (the defaults of the "
                 "names), or if the second run lacks a cell of the first");
  app.add_flag("--allow-missing", options.allow_missing, "do not fail for cells that the second run lacks");
  app.add_flag("--json", options.json, "print every cell as JSON (fields: results/json.md)");
}

void compare_with_last(const std::filesystem::path& folder) {
  const auto fact = [](const std::filesystem::path& of, const char* pointer) {
    return io::text_at(results::environment_in(of), pointer);
  };
  const std::string config = fact(folder, "/config/hash"), started = fact(folder, "/started");
  std::pair<std::string, std::filesystem::path> last;  // when it began
  for (const auto& entry : std::filesystem::directory_iterator(folder.parent_path())) {
    try {
      if (config.empty() || fact(entry.path(), "/config/hash") != config ||
          fact(entry.path(), "/finished").empty())
        continue;
      const std::string began = fact(entry.path(), "/started");
      if (began <= started && entry.path() != folder) last = std::max(last, {began, entry.path()});
    } catch (const std::exception&) {  // no folder, or a broken one, is no run to compare with
    }
  }
  if (last.second.empty()) return;
  try {
    const Run before(last.second), after(folder);
    const std::vector<Pair> pairs = pairs_of(before, after);
    std::printf("\nCompared with this config's last run, %s:\n", last.second.c_str());
    print_text(before, after, pairs, count(pairs));
  } catch (const std::exception& e) {  // an older folder must not end a run that is done
    std::printf("\nNot compared with this config's last run: %s\n", io::as_message(e.what()).c_str());
  }
}

int compare(const CompareOptions& options) {
  const Limits limits = parse_limits(options.fail_if);
  const Run before(options.before), after(options.after);
  std::vector<Pair> pairs = pairs_of(before, after);
  for (Pair& pair : pairs) judge(limits, options.allow_missing, pair);
  const Counts counts = count(pairs);
  if (counts.missing == before.cells.size())
    throw std::invalid_argument(options.before + " and " + options.after +
                                " have no cell in common; expected two runs of one config");
  if (options.json) {
    nlohmann::json cells = nlohmann::json::array();
    for (const Pair& pair : pairs) cells.push_back(json_of(pair));
    std::puts(
        io::json_text({{"before", options.before}, {"after", options.after}, {"cells", cells}}, 1).c_str());
  } else {
    print_text(before, after, pairs, counts);
  }
  return counts.broken > 0 ? kCellFailed : 0;
}

}  // namespace kv::cli
