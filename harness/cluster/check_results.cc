#include "harness/cluster/check_results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "harness/cluster/part.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/growth/columns.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/hash.h"
#include "harness/io/json.h"
#include "harness/math/medians.h"
#include "harness/measure/benchmark_json.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/run_context.h"
#include "harness/results/append_file.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"
#include "harness/results/table.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::cluster {
namespace {

namespace fs = std::filesystem;

// Files keep nine digits of each number, and an interval is computed from several numbers.
constexpr double kTolerance = 1e-6;

void check_environment(const nlohmann::json& environment, const std::string& config, Check& check) {
  for (const char* field :
       {"/kvlab/git_commit", "/compiler", "/cpu/model", "/isa", "/os", "/started", "/finished"}) {
    if (io::text_at(environment, field).empty())
      check.findings.push_back("env.json lacks " + std::string(field + 1));
  }
  if (const auto dirty = "/kvlab/git_dirty"_json_pointer;
      environment.contains(dirty) && environment[dirty] == true)
    check.notes.push_back(
        "measured from a tree with changes that its commit does not have; the site says so");
  const std::string hash = io::text_at(environment, "/config/hash"), now = io::hash_text(io::hash(config));
  if (hash.empty())
    check.notes.push_back("env.json has no hash of the config: an earlier version wrote it");
  else if (hash != now)
    check.findings.push_back("config.toml is not the one that ran: its hash is " + now + ", and was " + hash);
}

void check_values(const std::vector<results::Row>& cells, Check& check) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const results::Row& row : cells) {
    if (!seen.insert({row[results::kCell], row[results::kHost]}).second)
      check.findings.push_back("'" + row[results::kCell] + "' is there twice");
    for (const results::AnyColumn* column : experiments::cell_table().columns) {
      const std::string text = row.text(*column);
      const std::vector<std::string> values = results::words_of(column->values);
      if (values.empty() || text.empty() || std::ranges::count(values, text) > 0) continue;
      if (results::is_aa_test(row) && column->name == results::kVerdict.name)
        continue;  // earlier versions spelled it otherwise
      check.findings.push_back("'" + row[results::kCell] + "': " + std::string(column->name) + " is '" +
                               text + "', which is none of its values");
    }
    const bool split = row[results::kBytesPayload] && row[results::kBytesMetadata] &&
                       row[results::kBytesSlack] && row[results::kBytesPredicted];
    if (split && *row[results::kBytesPayload] + *row[results::kBytesMetadata] + *row[results::kBytesSlack] !=
                     *row[results::kBytesPredicted])
      check.findings.push_back("'" + row[results::kCell] +
                               "': payload, metadata and slack are not bytes_predicted together");
  }
}

// Computes a cell's payload, metadata and slack again, in the measured layers or all of the model's; nothing for
// experiments that count bytes at several lengths.
std::optional<int64_t> closed_form(const measure::SweepPoint& point, const measure::PlannedCell& cell,
                                   ModelShape (*shape)(const measure::SweepPoint&, int)) {
  const auto prompt_tokens = experiments::experiment_of(point).prompt_tokens;
  if (cell.uncached || !prompt_tokens) return std::nullopt;
  const auto sequences = static_cast<size_t>(point.batch);
  const std::vector<int64_t> lengths(sequences, point.seq_len), prompts(sequences, prompt_tokens(point));
  return predicted_bytes(cell.spec, shape(point, point.batch), lengths, prompts);
}

// The current key; earlier versions named the A/A test otherwise.
std::string current_key(const results::Row& row) {
  constexpr std::string_view kOld = " null";
  if (!results::is_aa_test(row) || !row[results::kCell].ends_with(kOld)) return row[results::kCell];
  return row[results::kCell].substr(0, row[results::kCell].size() - kOld.size()) + " " + results::kAaVerdict;
}

void check_sweep(const fs::path& folder, const std::vector<results::Row>& cells, bool whole, Check& check) {
  const config::Config config = experiments::load_config((folder / "config.toml").string(), {});
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  std::map<std::string, std::vector<const results::Row*>> rows;
  for (const results::Row& row : cells) rows[current_key(row)].push_back(&row);
  for (const measure::SweepPoint& point : sweep.points) {
    for (const measure::PlannedCell& cell : point.cells) {
      const auto found = rows.find(cell.key);
      if (found == rows.end()) {
        if (whole) check.findings.push_back("'" + cell.key + "' is in the config but not in cells.csv");
        continue;
      }
      for (const results::Row* row : found->second) {
        if ((*row)[results::kStatus] != results::Status::kOk || !(*row)[results::kBytesPredicted]) continue;
        for (const auto& [column, shape] : {std::pair{&results::kBytesPredicted, &measure::cache_shape},
                                            std::pair{&results::kModelBytes, &measure::model_shape}}) {
          const std::optional<int64_t> computed = closed_form(point, cell, shape);
          if (!computed || !(*row)[*column]) continue;
          ++check.closed_forms;
          if (*computed != *(*row)[*column])
            check.findings.push_back("'" + cell.key + "': " + std::string(column->name) + " is " +
                                     std::to_string(*(*row)[*column]) + ", and the closed form gives " +
                                     std::to_string(*computed));
        }
      }
      rows.erase(found);
    }
  }
  for (const auto& [key, _] : rows) check.findings.push_back("'" + key + "' is no cell of config.toml");
}

bool agree(const results::Number& stated, double computed) {
  if (!stated) return !std::isfinite(computed);
  return std::abs(*stated - computed) <= kTolerance * std::abs(computed);
}

// The name under which the row's baseline has its medians.
std::string baseline_of(const results::Row& row) {
  std::string name = row[results::kCell];
  const size_t at = name.rfind(row[results::kVariant]);
  if (at == std::string::npos) return "";
  return name.replace(at, std::string::npos, row[results::kVersus]);
}

void check_times(const std::vector<results::Row>& cells, const measure::RepetitionTimes& medians,
                 Check& check) {
  std::set<std::string> hosts;
  for (const results::Row& row : cells) hosts.insert(row[results::kHost]);
  const auto find = [&](const std::string& cell, const results::Row& row) {
    return medians.find(hosts.size() > 1 ? cell + " on " + row[results::kHost] : cell);
  };
  using results::NumberColumn;
  const auto check_interval = [&](const results::Row& row, const std::vector<double>& times,
                                  const NumberColumn& median, const NumberColumn& low,
                                  const NumberColumn& high) {
    const math::ConfidenceInterval interval = math::median_interval(times);
    ++check.intervals;
    if (!agree(row[median], math::median(times)) || !agree(row[low], interval.low) ||
        !agree(row[high], interval.high))
      check.findings.push_back("'" + row[results::kCell] + "': " + std::string(median.name) +
                               " and its interval are not those of benchmark.json");
  };
  for (const results::Row& row : cells) {
    const auto found = find(row[results::kCell], row);
    if (!row[measure::kStepCiLowUs] || found == medians.end()) continue;
    check_interval(row, found->second, measure::kStepP50Us, measure::kStepCiLowUs, measure::kStepCiHighUs);
    if (const auto total = find(row[results::kCell] + std::string(measure::kAppendTotal), row);
        total != medians.end() && row[experiments::kAppendTotalUs])
      check_interval(row, total->second, experiments::kAppendTotalUs, experiments::kAppendTotalCiLowUs,
                     experiments::kAppendTotalCiHighUs);
    const auto baseline = find(baseline_of(row), row);
    if (!row[measure::kRatioCiLow] || !row[measure::kRatioConfidence] || baseline == medians.end()) continue;
    const math::Ratio ratio = math::ratio_of_medians(found->second, baseline->second);
    const math::ConfidenceInterval around = ratio.interval(*row[measure::kRatioConfidence]);
    ++check.ratios;
    if (!agree(row[measure::kRatioP50], ratio.value) || !agree(row[measure::kRatioCiLow], around.low) ||
        !agree(row[measure::kRatioCiHigh], around.high))
      check.findings.push_back("'" + row[results::kCell] +
                               "': ratio_p50 and its interval are not those of benchmark.json");
  }
}

void check_samples(const fs::path& folder, const std::vector<results::Row>& cells,
                   const nlohmann::json& environment, Check& check) {
  const nlohmann::json benchmark = io::read_json(folder / "benchmark.json");
  if (!benchmark.is_object()) {
    check.findings.push_back("benchmark.json is missing or no JSON object");
    return;
  }
  if (!benchmark.contains("/context/kvlab_real_time"_json_pointer)) {
    check.notes.push_back(
        "intervals: an earlier version wrote benchmark.json, whose medians are not those of cells.csv");
    return;
  }
  const std::vector<results::Row> steps = experiments::timed_steps(folder);
  if (!steps.empty() && benchmark["context"]["kvlab_real_time"] == measure::kRealTime &&
      measure::benchmark_json(steps, environment) != results::read_whole(folder / "benchmark.json"))
    check.findings.push_back("benchmark.json is not made of samples.csv and growth.csv");
  check_times(cells, measure::repetition_times(benchmark), check);
}

}  // namespace

Check check_results(const fs::path& folder) {
  if (!fs::exists(folder / "cells.csv") || !fs::exists(folder / "config.toml"))
    throw std::invalid_argument(folder.string() +
                                " is no results folder of `kvlab run`: it needs config.toml and cells.csv");
  Check check;
  const std::string config = results::read_whole(folder / "config.toml"),
                    table = results::read_whole(folder / "cells.csv");
  if (table.empty() || table.back() != '\n')
    check.findings.push_back("cells.csv: the last line is torn (no line end)");
  const std::vector<results::Row> cells = results::read_csv(folder / "cells.csv", experiments::cell_table());
  check.cells = cells.size();
  const nlohmann::json environment = results::environment_in(folder);
  if (!environment.is_object())
    throw std::invalid_argument((folder / "env.json").string() + " is missing or no JSON object");
  check_environment(environment, config, check);
  check_values(cells, check);
  try {
    const std::string shard = io::text_at(environment, "/shard");
    check_sweep(folder, cells, shard.empty() || shard == "1/1", check);
  } catch (const std::exception& e) {
    check.notes.push_back("closed forms: the config cannot be planned here: " + std::string(e.what()));
  }
  check_samples(folder, cells, environment, check);
  const Sides sides = read_sides(folder);
  const bool has_samples =
      std::ranges::any_of(sides, [](const auto& side) { return side.first->find(measure::kStepUs.name); });
  std::ranges::move(differences(cells, sides, has_samples), std::back_inserter(check.findings));
  for (const std::string& name : unknown_tables(folder))
    check.notes.push_back(name + " is no table of this version");
  return check;
}

}  // namespace kv::cluster
