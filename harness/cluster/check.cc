#include "harness/cluster/check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "harness/cluster/part.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/plan.h"
#include "harness/io/hash.h"
#include "harness/io/json.h"
#include "harness/math/medians.h"
#include "harness/memory/run_context.h"
#include "harness/results/append_file.h"
#include "harness/results/benchmark_json.h"
#include "harness/results/csv.h"
#include "harness/results/results_folder.h"
#include "variants/model_cache/build.h"

namespace kv::cluster {
namespace {

namespace fs = std::filesystem;
using results::CellResult;
using Medians = std::map<std::string, std::vector<double>>;  // by a benchmark's name, in order of repetition

// Files keep nine digits of each number, and an interval is computed from several numbers.
constexpr double kTolerance = 1e-6;

void check_environment(const nlohmann::json& environment, const std::string& config, Check& check) {
  for (const char* field :
       {"/kvlab/git_commit", "/compiler", "/cpu/model", "/isa", "/os", "/started", "/finished"}) {
    if (text_at(environment, field).empty())
      check.findings.push_back("env.json lacks " + std::string(field + 1));
  }
  if (environment.value("/kvlab/git_dirty"_json_pointer, false))
    check.notes.push_back(
        "measured from a tree with changes that its commit does not have; the site says so");
  const std::string hash = text_at(environment, "/config/hash"), now = io::hash_text(io::hash(config));
  if (hash.empty())
    check.notes.push_back("env.json has no hash of the config: an earlier version wrote it");
  else if (hash != now)
    check.findings.push_back("config.toml is not the one that ran: its hash is " + now + ", and was " + hash);
}

void check_values(const std::vector<CellResult>& cells, Check& check) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const CellResult& row : cells) {
    if (!seen.insert({row.cell, row.host}).second)
      check.findings.push_back("'" + row.cell + "' is there twice");
    for (const auto& field : results::cell_schema().fields()) {
      const std::string text = field.text(row);
      if (field.values.empty() || text.empty() || std::ranges::count(field.values, text) > 0) continue;
      if (row.is_aa_test() && field.name == "verdict") continue;  // earlier versions spelled it otherwise
      check.findings.push_back("'" + row.cell + "': " + std::string(field.name) + " is '" + text +
                               "', which is none of its values");
    }
    const bool split = row.bytes_payload && row.bytes_metadata && row.bytes_slack && row.bytes_predicted;
    if (split && *row.bytes_payload + *row.bytes_metadata + *row.bytes_slack != *row.bytes_predicted)
      check.findings.push_back("'" + row.cell +
                               "': payload, metadata and slack are not bytes_predicted together");
  }
}

// A cell's payload, metadata and slack, computed again; empty for experiments that count bytes at several lengths.
std::optional<int64_t> closed_form(const measure::SweepPoint& point, const measure::PlannedCell& cell) {
  const bool decode = point.experiment->kind == "decode";
  if (cell.uncached || (!decode && point.experiment->kind != "growth")) return std::nullopt;
  const auto sequences = static_cast<size_t>(point.batch);
  const int64_t steps = decode ? point.experiment->measure.steps : point.seq_len;
  const std::vector<int64_t> lengths(sequences, point.seq_len),
      prompts(sequences, std::max<int64_t>(0, point.seq_len - steps));
  return predicted_bytes(cell.spec, measure::cache_shape(point, point.batch), lengths, prompts);
}

// The current key; earlier versions named the A/A test otherwise.
std::string current_key(const CellResult& row) {
  constexpr std::string_view kOld = " null";
  if (!row.is_aa_test() || !row.cell.ends_with(kOld)) return row.cell;
  return row.cell.substr(0, row.cell.size() - kOld.size()) + " " + CellResult::kAaVerdict;
}

void check_sweep(const fs::path& folder, const std::vector<CellResult>& cells, bool whole, Check& check) {
  const config::Config config = experiments::load_config((folder / "config.toml").string(), {});
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  std::map<std::string, std::vector<const CellResult*>> rows;
  for (const CellResult& row : cells) rows[current_key(row)].push_back(&row);
  for (const measure::SweepPoint& point : sweep.points) {
    for (const measure::PlannedCell& cell : point.cells) {
      const auto found = rows.find(cell.key);
      if (found == rows.end()) {
        if (whole) check.findings.push_back("'" + cell.key + "' is in the config but not in cells.csv");
        continue;
      }
      for (const CellResult* row : found->second) {
        if (row->status != results::Status::kOk || !row->bytes_predicted) continue;
        const std::optional<int64_t> computed = closed_form(point, cell);
        check.closed_forms += computed.has_value();
        if (computed && *computed != *row->bytes_predicted)
          check.findings.push_back("'" + cell.key + "': bytes_predicted is " +
                                   std::to_string(*row->bytes_predicted) + ", and the closed form gives " +
                                   std::to_string(*computed));
      }
      rows.erase(found);
    }
  }
  for (const auto& [key, _] : rows) check.findings.push_back("'" + key + "' is no cell of config.toml");
}

Medians medians_in(const nlohmann::json& benchmark) {
  Medians medians;
  for (const nlohmann::json& entry : benchmark.value("benchmarks", nlohmann::json::array())) {
    if (entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
        entry.contains("real_time") && entry["real_time"].is_number())
      medians[entry["name"].get<std::string>()].push_back(entry["real_time"].get<double>());
  }
  return medians;
}

bool agree(const results::Number& stated, double computed) {
  if (!stated) return !std::isfinite(computed);
  return std::abs(*stated - computed) <= kTolerance * std::abs(computed);
}

// The name under which the row's baseline has its medians.
std::string baseline_of(const CellResult& row) {
  std::string name = row.cell;
  const size_t at = name.rfind(row.variant);
  if (at == std::string::npos) return "";
  return name.replace(at, std::string::npos, row.versus);
}

void check_times(const std::vector<CellResult>& cells, const Medians& medians, Check& check) {
  std::set<std::string> hosts;
  for (const CellResult& row : cells) hosts.insert(row.host);
  const auto find = [&](const std::string& cell, const CellResult& row) {
    return medians.find(hosts.size() > 1 ? cell + " on " + row.host : cell);
  };
  for (const CellResult& row : cells) {
    const auto found = find(row.cell, row);
    if (!row.step_ci_low_us || found == medians.end()) continue;
    const math::ConfidenceInterval interval = math::median_interval(found->second);
    ++check.intervals;
    if (!agree(row.step_p50_us, math::median(found->second)) || !agree(row.step_ci_low_us, interval.low) ||
        !agree(row.step_ci_high_us, interval.high))
      check.findings.push_back("'" + row.cell +
                               "': step_p50_us and its interval are not those of benchmark.json");
    const auto baseline = find(baseline_of(row), row);
    if (!row.ratio_ci_low || !row.ratio_confidence || baseline == medians.end()) continue;
    const math::Ratio ratio = math::ratio_of_medians(found->second, baseline->second);
    const math::ConfidenceInterval around = ratio.interval(*row.ratio_confidence);
    ++check.ratios;
    if (!agree(row.ratio_p50, ratio.value) || !agree(row.ratio_ci_low, around.low) ||
        !agree(row.ratio_ci_high, around.high))
      check.findings.push_back("'" + row.cell +
                               "': ratio_p50 and its interval are not those of benchmark.json");
  }
}

void check_samples(const fs::path& folder, const std::vector<CellResult>& cells,
                   const nlohmann::json& environment, Check& check) {
  const std::string text = results::read_whole(folder / "benchmark.json");
  const nlohmann::json benchmark = io::parse_json(text, (folder / "benchmark.json").string());
  if (!benchmark.is_object()) {
    check.findings.push_back("benchmark.json is missing or no JSON object");
    return;
  }
  if (!benchmark.contains("/context/kvlab_real_time"_json_pointer)) {
    check.notes.push_back(
        "intervals: an earlier version wrote benchmark.json, whose medians are not those of cells.csv");
    return;
  }
  if (fs::exists(folder / "samples.csv") && fs::exists(folder / "growth.csv") &&
      results::benchmark_json(results::read_csv(folder / "samples.csv", results::sample_schema()),
                              results::read_csv(folder / "growth.csv", results::growth_schema()),
                              environment) != text)
    check.findings.push_back("benchmark.json is not made of samples.csv and growth.csv");
  check_times(cells, medians_in(benchmark), check);
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
  const std::vector<CellResult> cells = results::read_csv(folder / "cells.csv", results::cell_schema());
  check.cells = cells.size();
  const nlohmann::json environment = results::environment_in(folder);
  if (!environment.is_object())
    throw std::invalid_argument((folder / "env.json").string() + " is missing or no JSON object");
  check_environment(environment, config, check);
  check_values(cells, check);
  try {
    const std::string shard = text_at(environment, "/shard");
    check_sweep(folder, cells, shard.empty() || shard == "1/1", check);
  } catch (const std::exception& e) {
    check.notes.push_back("closed forms: the config cannot be planned here: " + std::string(e.what()));
  }
  check_samples(folder, cells, environment, check);
  return check;
}

}  // namespace kv::cluster
