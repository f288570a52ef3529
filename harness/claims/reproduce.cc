#include "harness/claims/reproduce.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "harness/claims/quantities.h"
#include "harness/experiments/experiment.h"
#include "harness/io/json.h"
#include "harness/io/paths.h"
#include "harness/measure/environment.h"
#include "harness/memory/machine.h"
#include "harness/results/results_folder.h"

namespace kv::claims {
namespace {

namespace fs = std::filesystem;

struct PlannedRun {
  std::string source, name;
  std::vector<config::Config> configs;  // one a seed
  std::vector<fs::path> folders;
  bool takes_model = false;  // that of the options
};

bool wanted(const Statement& s, const ReproduceOptions& options) {
  return (!options.quick || !s.depends_on_machine()) && (!options.tables || !s.table.empty());
}

void require_figures(const std::vector<ClaimFile>& files, const ReproduceOptions& options) {
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      if (std::ranges::any_of(claim.statements, [&](const Statement& s) { return wanted(s, options); }))
        return;
    }
  }
  if (options.tables)
    throw std::invalid_argument("--tables: no claim named here states a table of its source; 001 and 004 do");
}

std::set<std::string> runs_needed(const ClaimFile& file, const ReproduceOptions& options) {
  std::set<std::string> names;
  for (const Claim& claim : file.claims) {
    for (const Statement& s : claim.statements) {
      if (!wanted(s, options)) continue;
      for (const auto& [name, quantity] : s.quantities) names.insert(quantity.run);
    }
  }
  return names;
}

// The run's config goes into the folder first: the driver reads configs from files. A committed run is taken as it is, unless the
// user's model is to stand in: then its own config is run, or the one of configs by its name.
PlannedRun plan_run(const ClaimFile& file, const std::string& name, const ReproduceOptions& options) {
  const ClaimRun& run = file.runs.at(name);
  PlannedRun planned;
  planned.source = file.name;
  planned.name = name;
  const bool committed = !run.results.empty();
  const fs::path folder = options.out / "runs" / (file.name + "-" + name);
  const fs::path config = run.toml.empty()
                              ? io::project_home() / "configs" / (fs::path(run.results).filename() += ".toml")
                              : fs::path(folder.string() + ".toml");
  if (!run.toml.empty()) results::write_whole(config, run.toml);
  std::vector<int64_t> seeds = run.seeds;
  if (seeds.empty()) seeds = {-1};
  for (const int64_t seed : seeds) {
    try {
      config::Overrides overrides;
      if (options.quick)
        overrides.set.push_back("measure.retries=0");  // no verdict of a quick run rests on a time
      overrides.seed = seed;
      overrides.threads = options.threads;
      if (!committed || !options.workload.model.empty())
        planned.configs.push_back(experiments::load_config(config.string(), overrides));
      if (!options.workload.model.empty() && !planned.configs.back().workload.model.empty()) {
        overrides.workload = options.workload;
        planned.configs.back() = experiments::load_config(config.string(), overrides);
        planned.takes_model = true;
      }
    } catch (const std::invalid_argument& e) {
      throw std::invalid_argument(file.path + ": [run." + name + "]: " + e.what());
    }
    planned.folders.push_back(seeds.size() == 1 ? folder
                                                : fs::path(folder.string() + "-seed" + std::to_string(seed)));
  }
  if (committed && !planned.takes_model) {
    planned.configs.clear();
    planned.folders = {committed_run(run.results)};
  }
  return planned;
}

std::vector<PlannedRun> plan(const std::vector<ClaimFile>& files, const ReproduceOptions& options) {
  std::vector<PlannedRun> runs;
  const bool is_new = fs::create_directories(options.out / "runs");
  try {
    for (const ClaimFile& file : files) {
      for (const std::string& name : runs_needed(file, options))
        runs.push_back(plan_run(file, name, options));
    }
    const auto takes_model = [](const PlannedRun& run) { return run.takes_model; };
    if (!options.workload.model.empty() && std::none_of(runs.begin(), runs.end(), takes_model))
      throw std::invalid_argument(
          "--model has no use: no run of these claims reads a model, as that of 003/int8 does");
  } catch (const std::invalid_argument&) {
    if (is_new) fs::remove_all(options.out);  // the same command may be given again
    throw;
  }
  return runs;
}

// False if it was stopped.
bool execute(const PlannedRun& run, const ReproduceOptions& options, Reproduction& result) {
  for (size_t i = 0; i < run.configs.size(); ++i) {
    const std::string seed = run.configs.size() > 1 ? ", seed " + std::to_string(run.configs[i].seed) : "";
    const experiments::RunOutcome outcome = experiments::run_config(
        run.configs[i], {.out = run.folders[i],
                         .resume = true,
                         .stop = options.stop,
                         .note = options.note,
                         .progress = options.progress(run.source + " " + run.name + seed)});
    for (const results::Row& cell : outcome.cells)
      result.any_failed |= cell[results::kStatus] == results::Status::kFailed;
    if (!outcome.finished) return false;
  }
  return true;
}

std::vector<FigureResult> check_all(const std::vector<ClaimFile>& files,
                                    const std::map<std::string, Quantities>& quantities,
                                    const ReproduceOptions& options) {
  std::vector<FigureResult> rows;
  const int64_t limit = std::min(options.measured_up_to, memory::available_memory_bytes() / 2);
  tables::CountedBytes counted(limit);
  for (const ClaimFile& file : files) {
    for (const Claim& claim : file.claims) {
      for (const Statement& s : claim.statements) {
        if (options.stop()) return rows;
        if (wanted(s, options))
          rows.push_back({check(s, quantities.at(file.name), counted), &file, &claim, &s});
      }
    }
  }
  settle(rows);
  return rows;
}

}  // namespace

Reproduction reproduce(const std::vector<ClaimFile>& files, const ReproduceOptions& options) {
  require_figures(files, options);
  // The same command goes on with what a killed or stopped one left: it writes claims.csv last.
  if (!fs::is_directory(options.out / "runs") || fs::exists(options.out / "claims.csv"))
    results::require_new_folder(options.out);
  Reproduction result;
  std::map<std::string, Quantities> quantities;
  for (const ClaimFile& file : files) quantities[file.name];
  const std::vector<PlannedRun> runs = plan(files, options);
  for (const PlannedRun& run : runs) {
    if (!execute(run, options, result)) return result;
    quantities[run.source].add(run.name, run.folders);
  }
  try {
    result.figures = check_all(files, quantities, options);
  } catch (const std::invalid_argument&) {
    if (runs.empty()) fs::remove_all(options.out);  // the same command may be given again
    throw;
  }
  result.finished = !options.stop();
  if (!result.finished) return result;
  nlohmann::json environment = measure::describe_environment();
  environment["quick"] = options.quick;
  results::write_whole(options.out / "env.json", io::json_text(environment, 2) + "\n");
  results::write_whole(options.out / "claims.csv", claims_csv(result.figures));
  return result;
}

}  // namespace kv::claims
