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
#include "harness/experiments/plan.h"
#include "harness/experiments/reading_keys.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/hash.h"
#include "harness/io/json.h"
#include "harness/math/medians.h"
#include "harness/measure/benchmark_json.h"
#include "harness/measure/prediction_columns.h"
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
    check.notes.push_back("measured with uncommitted changes; the site says so");
  const std::string hash = io::text_at(environment, "/config/hash"), now = io::hash_text(io::hash(config));
  if (hash.empty())
    check.notes.push_back("env.json has no hash of the config, because an earlier version wrote it");
  else if (hash != now)
    check.findings.push_back("config.toml has changed since the run: its hash is " + now + ", but was " +
                             hash);
}

void check_values(const std::vector<results::Row>& cells, Check& check) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const results::Row& row : cells) {
    if (!seen.insert({row[results::kCell], row[results::kHost]}).second)
      check.findings.push_back("'" + row[results::kCell] + "' has two rows");
    for (const results::AnyColumn* column : experiments::cell_table().columns) {
      const std::string text = row.text(*column);
      const std::vector<std::string> values = results::words_of(column->values);
      if (values.empty() || text.empty() || std::ranges::count(values, text) > 0) continue;
      if (results::is_aa_test(row) && column->name == results::kVerdict.name)
        continue;  // earlier versions spelled it otherwise
      check.findings.push_back("'" + row[results::kCell] + "': " + std::string(column->name) + " is '" +
                               text + "', which is not one of its values");
    }
    const bool split = row[results::kBytesPayload] && row[results::kBytesMetadata] &&
                       row[results::kBytesSlack] && row[results::kBytesPredicted];
    check.sums += split;
    if (split && *row[results::kBytesPayload] + *row[results::kBytesMetadata] + *row[results::kBytesSlack] !=
                     *row[results::kBytesPredicted])
      check.findings.push_back("'" + row[results::kCell] +
                               "': the sum of payload, metadata and slack is not bytes_predicted");
  }
}

// Computes a cell's payload, metadata and slack again, in the measured layers or all of the model's; nothing for
// experiments that count bytes at several lengths.
std::optional<int64_t> closed_form(const measure::SweepPoint& point, const measure::PlannedCell& cell,
                                   ModelShape (*shape)(const measure::SweepPoint&, int)) {
  const experiments::Experiment& experiment = experiments::experiment_of(point);
  if (cell.uncached || !experiment.first_step) return std::nullopt;
  const int held = experiment.one_at_a_time ? 1 : point.batch;
  const auto sequences = static_cast<size_t>(held);
  const std::vector<int64_t> lengths(sequences, point.seq_len),
      prompts(sequences, experiment.first_step(point));
  return predicted_bytes(cell.spec, shape(point, held), lengths, prompts);
}

bool names_prefill(std::string_view experiment) {
  const experiments::Experiment* found = experiments::find_experiment(experiment);
  return found && found->names_prefill;
}

// Earlier versions had no column `prefill` in such experiments, and each cache read its prompt.
bool stores_prompts(const std::vector<results::Row>& cells) {
  const auto is_read = [](const results::Row& row) {
    return names_prefill(row[results::kExperiment]) && row[results::kStatus] == results::Status::kOk;
  };
  return std::ranges::any_of(cells, is_read) && std::ranges::none_of(cells, [&](const results::Row& row) {
           return is_read(row) && !row[measure::kPrefill].empty();
         });
}

// The current key; earlier versions named the A/A test otherwise.
std::string current_key(const results::Row& row, bool stored) {
  if (stored && names_prefill(row[results::kExperiment])) return row[results::kCell] + " prefill stored";
  constexpr std::string_view kOld = " null";
  if (!results::is_aa_test(row) || !row[results::kCell].ends_with(kOld)) return row[results::kCell];
  return row[results::kCell].substr(0, row[results::kCell].size() - kOld.size()) + " " + results::kAaVerdict;
}

void check_sweep(const fs::path& folder, const std::vector<results::Row>& cells, bool whole, Check& check) {
  const bool stored = stores_prompts(cells);
  config::Config config = experiments::load_config((folder / "config.toml").string(), {});
  for (config::ExperimentConfig& sweep : config.experiments) {
    if (stored && names_prefill(sweep.kind)) sweep.settings.set(experiments::kPrefillKey, "stored");
  }
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  std::map<std::string, std::vector<const results::Row*>> rows;
  for (const results::Row& row : cells) rows[current_key(row, stored)].push_back(&row);
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
                                     std::to_string(*(*row)[*column]) + ", but the closed form gives " +
                                     std::to_string(*computed));
        }
      }
      rows.erase(found);
    }
  }
  for (const auto& [key, _] : rows) check.findings.push_back("'" + key + "' is not a cell of config.toml");
}

bool agree(const results::Number& stated, double computed) {
  if (!stated) return !std::isfinite(computed);
  return std::abs(*stated - computed) <= kTolerance * std::abs(computed);
}

// The names under which the row's baseline may have its medians: another variant's cell, or another arm's of the same variant.
std::vector<std::string> baselines_of(const results::Row& row) {
  std::string name = row[results::kCell];
  if (results::is_aa_test(row)) name.resize(std::min(name.rfind(' '), name.size()));  // its last word says so
  const std::string& variant = row[results::kVariant];
  const size_t at = name.rfind(variant);
  if (at == std::string::npos) return {};
  const std::string before = name.substr(0, at), after = name.substr(at + variant.size());
  return {before + row[results::kVersus] + after, before + row[results::kVersus],
          before + variant + " " + row[results::kVersus]};
}

// The columns of a kind of samples: their median, and the interval around it, which some kinds lack.
struct Time {
  std::string p50, low, high;
  std::string suffix;  // of its names in benchmark.json
};

std::vector<Time> times() {
  std::vector<Time> all;
  for (const std::string& kind : results::words_of(measure::kKind.values)) {
    for (const char* p50 : {"_p50_us", "_attend_p50_us"}) {
      if (experiments::cell_table().find(kind + p50))
        all.push_back(
            {kind + p50, kind + "_ci_low_us", kind + "_ci_high_us", kind == "step" ? "" : " " + kind});
    }
  }
  if (const std::string total = "append_total"; experiments::cell_table().find(total + "_us"))
    all.push_back(
        {total + "_us", total + "_ci_low_us", total + "_ci_high_us", std::string(measure::kAppendTotal)});
  return all;
}

bool is_timed(const results::Row& row) {
  return std::ranges::any_of(times(), [&](const Time& time) { return row.number(time.p50).has_value(); });
}

void check_time(const results::Row& row, const Time& time, const std::vector<double>& medians, Check& check) {
  ++check.medians;
  const math::ConfidenceInterval interval = math::median_interval(medians);
  const bool has_interval = experiments::cell_table().find(time.low);
  if (agree(row.number(time.p50), math::median(medians)) &&
      (!has_interval ||
       (agree(row.number(time.low), interval.low) && agree(row.number(time.high), interval.high))))
    return;
  check.findings.push_back("'" + row[results::kCell] + "': " + time.p50 +
                           (has_interval ? " and its interval differ" : " differs") +
                           " from benchmark.json's medians");
}

void check_times(const std::vector<results::Row>& cells, const measure::RepetitionTimes& medians,
                 Check& check) {
  std::set<std::string> hosts;
  for (const results::Row& row : cells) hosts.insert(row[results::kHost]);
  const std::vector<Time> kinds = times();
  const auto find = [&](const std::string& cell, const results::Row& row) {
    return medians.find(hosts.size() > 1 ? cell + " on " + row[results::kHost] : cell);
  };
  for (const results::Row& row : cells) {
    for (const Time& time : kinds) {
      if (!row.number(time.p50)) continue;
      const std::string name = row[results::kCell] + time.suffix;
      if (const auto found = find(name, row); found != medians.end())
        check_time(row, time, found->second, check);
      else
        check.findings.push_back("'" + name + "' has a median in cells.csv but none in benchmark.json");
    }
    if (!row[measure::kRatioP50.low] || !row[measure::kRatioConfidence]) continue;
    const std::string kind = row.number(kinds.front().p50) ? "" : " prefill";
    const auto found = find(row[results::kCell] + kind, row);
    auto baseline = medians.end();
    for (const std::string& name : baselines_of(row))
      if (baseline == medians.end()) baseline = find(name + kind, row);
    if (found == medians.end() || baseline == medians.end()) continue;
    const math::Ratio ratio = math::ratio_of_medians(found->second, baseline->second);
    const math::ConfidenceInterval around = ratio.interval(*row[measure::kRatioConfidence]);
    ++check.ratios;
    if (!agree(row[measure::kRatioP50], ratio.value) || !agree(row[measure::kRatioP50.low], around.low) ||
        !agree(row[measure::kRatioP50.high], around.high))
      check.findings.push_back("'" + row[results::kCell] +
                               "': ratio_p50 and its interval differ from those of benchmark.json");
  }
}

// A share of slack follows from the bytes beside it.
void check_shares(const std::vector<results::Row>& cells, Check& check) {
  for (const results::Row& row : cells) {
    const results::Number &stated = row.number("fragmentation_share"),
                          &slack = row.number("slack_mean_bytes"),
                          &payload = row.number("payload_mean_bytes");
    if (!stated || !slack || !payload) continue;
    ++check.shares;
    if (!agree(stated, *slack / (*slack + *payload)))
      check.findings.push_back("'" + row[results::kCell] +
                               "': fragmentation_share differs from slack / (slack + payload)");
  }
}

// Verdicts over all cells of a run follow from their other columns.
void check_verdicts(const std::vector<results::Row>& cells, Check& check) {
  std::vector<results::Row> judged = cells;
  check.verdicts = experiments::judge_cells(judged);
  for (size_t i = 0; i < cells.size(); ++i) {
    for (const results::AnyColumn* column : experiments::cell_table().columns) {
      const std::string stated = cells[i].text(*column), computed = judged[i].text(*column);
      if (stated == computed) continue;
      check.findings.push_back("'" + cells[i][results::kCell] + "': " + std::string(column->name) + " is '" +
                               stated + "', but all cells together give '" + computed + "'");
      break;
    }
  }
}

void check_samples(const fs::path& folder, const std::vector<results::Row>& cells,
                   const nlohmann::json& environment, Check& check) {
  const auto timed = std::ranges::count_if(cells, is_timed);
  const nlohmann::json benchmark = io::read_json(folder / "benchmark.json");
  if (!benchmark.is_object()) {
    if (timed > 0) check.findings.push_back("benchmark.json is missing or not a JSON object");
    return;
  }
  if (!benchmark.contains("/context/kvlab_real_time"_json_pointer)) {
    if (timed > 0)
      check.findings.push_back(
          "an earlier version wrote benchmark.json, with means of steps: the medians of " +
          std::to_string(timed) + " cells cannot be recomputed; measure them again");
    return;
  }
  const std::vector<results::Row> steps = experiments::timed_steps(folder);
  if (!steps.empty() && benchmark["context"]["kvlab_real_time"] == measure::kRealTime &&
      measure::benchmark_json(steps, environment) != results::read_whole(folder / "benchmark.json"))
    check.findings.push_back("benchmark.json differs from samples.csv and growth.csv");
  check_times(cells, measure::repetition_times(benchmark), check);
}

}  // namespace

Check check_results(const fs::path& folder) {
  if (!fs::exists(folder / "cells.csv") || !fs::exists(folder / "config.toml"))
    throw std::invalid_argument(folder.string() +
                                " is not a results folder of `kvlab run`: it lacks config.toml or cells.csv");
  Check check;
  const std::string config = results::read_whole(folder / "config.toml"),
                    table = results::read_whole(folder / "cells.csv");
  if (table.empty() || table.back() != '\n')
    check.findings.push_back("cells.csv: the last line is incomplete (no line end)");
  const std::vector<results::Row> cells = results::read_csv(folder / "cells.csv", experiments::cell_table());
  check.cells = cells.size();
  const nlohmann::json environment = results::environment_in(folder);
  if (!environment.is_object())
    throw std::invalid_argument((folder / "env.json").string() + " is missing or not a JSON object");
  check_environment(environment, config, check);
  check_values(cells, check);
  try {
    const std::string shard = io::text_at(environment, "/shard");
    check_sweep(folder, cells, shard.empty() || shard == "1/1", check);
  } catch (const std::exception& e) {
    check.notes.push_back("closed forms not checked: the config cannot be planned here: " +
                          std::string(e.what()));
  }
  check_samples(folder, cells, environment, check);
  check_shares(cells, check);
  check_verdicts(cells, check);
  const Sides sides = read_sides(folder);
  const bool has_samples =
      std::ranges::any_of(sides, [](const auto& side) { return side.first->find(measure::kStepUs.name); });
  std::ranges::move(differences(cells, sides, has_samples), std::back_inserter(check.findings));
  for (const std::string& name : unknown_tables(folder))
    check.notes.push_back(name + " is not a table of an experiment and was not checked");
  if (check.sums + check.closed_forms + check.medians + check.ratios + check.shares + check.verdicts == 0)
    check.findings.push_back("nothing could be recomputed, neither bytes nor times");
  return check;
}

}  // namespace kv::cluster
