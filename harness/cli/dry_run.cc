#include "harness/cli/dry_run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "harness/cli/cell_text.h"
#include "harness/cli/document.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/io/hash.h"
#include "harness/io/json.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "harness/io/text.h"
#include "harness/io/text_table.h"
#include "harness/memory/machine.h"
#include "harness/memory/run_context.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

// The cells of one experiment, or of all.
struct Part {
  std::string experiment;
  int64_t points = 0, cells = 0, measured = 0, peak_bytes = 0;
  double tokens = 0.0;  // that its measured cells hold, and what each costs beside them
};

double tokens_of(const experiments::Experiment& experiment, double batch, double seq_len) {
  return batch * (seq_len + experiment.fixed_tokens);
}

void add(Part& part, const measure::SweepPoint& point, bool is_outline) {
  const auto variants = static_cast<int64_t>(point.experiment->axes.variants.size());
  const auto measured = std::ranges::count_if(point.cells, &measure::PlannedCell::is_measured);
  ++part.points;
  part.cells += is_outline ? variants : std::ssize(point.cells);
  part.measured += is_outline ? variants : measured;
  part.tokens +=
      static_cast<double>(is_outline ? variants : measured) *
      tokens_of(experiments::experiment_of(point), point.batch, static_cast<double>(point.seq_len));
  part.peak_bytes = std::max(part.peak_bytes, point.peak_bytes);
}

// A finished run of the same config, as a clock.
struct EarlierRun {
  fs::path folder;
  std::string cpu, started;
  int64_t threads = 0;
  double seconds = 0.0;
  bool same_config = false, same_cpu = false;
  std::vector<results::Row> cells = {};

  bool better_than(const EarlierRun& other) const {
    return std::tie(same_config, same_cpu, started) >
           std::tie(other.same_config, other.same_cpu, other.started);
  }
};

std::optional<std::time_t> seconds_of(const std::string& utc) {
  std::tm time{};
  const char* end = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (!end || *end != '\0') return std::nullopt;
  return timegm(&time);
}

std::optional<EarlierRun> earlier_run(const fs::path& folder, const config::Config& config) {
  const nlohmann::json environment = results::environment_in(folder);
  if (io::text_at(environment, "/config/name") != config.name) return std::nullopt;
  const auto started = seconds_of(io::text_at(environment, "/started"));
  const auto finished = seconds_of(io::text_at(environment, "/finished"));
  if (!started || !finished || *finished < *started) return std::nullopt;
  const std::string cpu = io::text_at(environment, "/cpu/model");
  return EarlierRun{
      .folder = folder,
      .cpu = cpu,
      .started = io::text_at(environment, "/started"),
      .threads = environment.value("threads", int64_t{0}),
      .seconds = std::max(1.0, std::difftime(*finished, *started)),
      .same_config = io::text_at(environment, "/config/hash") == io::hash_text(io::hash(config.as_run)),
      .same_cpu = cpu == memory::proc_value("/proc/cpuinfo", "model name")};
}

// The best of results/*/*: the same settings before others, this processor before others, the latest of these.
std::optional<EarlierRun> find_earlier_run(const config::Config& config) {
  std::optional<EarlierRun> best;
  std::error_code error;
  for (const auto& machine : fs::directory_iterator(io::project_home() / "results", error)) {
    for (const auto& folder : fs::directory_iterator(machine.path(), error)) {
      try {
        std::optional<EarlierRun> run = earlier_run(folder.path(), config);
        if (!run || (best && !run->better_than(*best))) continue;
        run->cells = results::read_csv(folder.path() / "cells.csv", experiments::cell_table());
        if (!run->cells.empty()) best = std::move(run);
      } catch (const std::exception&) {
        continue;  // another version's folder
      }
    }
  }
  return best;
}

double tokens_of(const EarlierRun& run) {
  double tokens = 0.0;
  for (const results::Row& row : run.cells) {
    const experiments::Experiment* experiment = experiments::find_experiment(row[results::kExperiment]);
    if (experiment && row[results::kStatus] == results::Status::kOk)
      tokens += tokens_of(*experiment, static_cast<double>(row[results::kBatch].value_or(1)),
                          static_cast<double>(row[results::kSeqLen].value_or(0)));
  }
  return tokens;
}

struct Estimate {
  double seconds_per_token;
  std::string from;
};

Estimate estimate(const config::Config& config) {
  const std::optional<EarlierRun> run = find_earlier_run(config);
  const double tokens = run ? tokens_of(*run) : 0.0;
  if (tokens == 0.0)
    return {rough_seconds(1.0),
            "a rough estimate from the tokens of all caches; real times are 0.1 to 10 times as long"};
  const std::string folder = run->folder.lexically_relative(io::project_home()).string();
  return {run->seconds / tokens, folder + " took " + duration(run->seconds) + " (" + run->cpu + ", " +
                                     std::to_string(run->threads) +
                                     (run->threads == 1 ? " thread)" : " threads)") +
                                     (run->same_config ? "" : "; scaled by the tokens of all caches")};
}

struct Planned {
  std::vector<Part> parts;  // one an experiment
  Part all{.experiment = "all"};
  std::string prepares;  // what the run downloads or converts first; then the cells and memory are not known
  std::string left_out;  // the first reason why a cell is not measured
  measure::DiskNeed disk = {};
  int64_t available_bytes = 0;
};

Planned plan(const DryRun& run) {
  const memory::RunContext context(run.config.device, run.config.isa, run.config.threads);
  Planned planned;
  experiments::Sweep sweep;
  try {
    sweep = experiments::plan_sweep(run.config, context);
  } catch (const io::NotHere& missing) {
    planned.prepares = missing.what();
    sweep = experiments::outline(run.config, context);
  }
  experiments::keep_shard(run.shard, sweep.points);
  for (const measure::SweepPoint& point : sweep.points) {
    const std::string& name = point.experiment->kind;
    auto part = std::ranges::find(planned.parts, name, &Part::experiment);
    if (part == planned.parts.end())
      part = planned.parts.insert(planned.parts.end(), Part{.experiment = name});
    for (Part* to : {&*part, &planned.all}) add(*to, point, !planned.prepares.empty());
    for (const measure::PlannedCell& cell : point.cells) {
      if (!cell.is_measured() && planned.left_out.empty())
        planned.left_out = cell.key + ": " + results::text_of(cell.status) + ": " + cell.reason;
    }
  }
  planned.disk = experiments::most_disk(sweep);
  planned.available_bytes = experiments::available_bytes(context);
  return planned;
}

nlohmann::ordered_json json_of(const Part& part, const Estimate& time) {
  nlohmann::ordered_json json{
      {"experiment", part.experiment}, {"points", part.points}, {"cells", part.cells}};
  json["measured"] = part.measured;
  json["peak_bytes"] = part.peak_bytes > 0 ? nlohmann::ordered_json(part.peak_bytes) : nullptr;
  json["estimated_s"] = std::round(10.0 * part.tokens * time.seconds_per_token) / 10.0;
  return json;
}

std::string json_of(const DryRun& run, const Planned& planned, const Estimate& time) {
  nlohmann::ordered_json json{{"config", run.config.path}};
  for (const Part& part : planned.parts) json["experiments"].push_back(json_of(part, time));
  json["all"] = json_of(planned.all, time);
  json["estimated_from"] = time.from;
  json["available_bytes"] = planned.available_bytes;
  json["disk_bytes"] = planned.disk.bytes;
  json["prepares"] = planned.prepares;
  json["not_measured_as"] = planned.left_out;
  json["out"] = run.out.string();
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string text_of(const DryRun& run, const Planned& planned, const Estimate& time) {
  std::vector<Strings> rows{{"experiment", "sweep points", "cells", "memory", "time"}};
  std::vector<Part> parts = planned.parts;
  if (parts.size() > 1) parts.push_back(planned.all);
  for (const Part& part : parts) {
    rows.push_back({part.experiment, std::to_string(part.points), std::to_string(part.cells),
                    part.peak_bytes > 0 ? io::human_bytes(part.peak_bytes) : "-",
                    duration(part.tokens * time.seconds_per_token)});
  }
  std::vector<std::string> lines{"A cell is one cache at one sweep point. Memory is the predicted peak; " +
                                     io::human_bytes(planned.available_bytes) + " are free.",
                                 "Time: " + time.from + "."};
  if (!planned.prepares.empty())
    lines.push_back("First: " + planned.prepares +
                    ". The cells are those of the config; memory is known afterwards.");
  if (!planned.left_out.empty())
    lines.push_back("Not measured: " + std::to_string(planned.all.cells - planned.all.measured) +
                    " cells, such as " + planned.left_out);
  if (planned.disk.bytes > 0)
    lines.push_back("Disk: up to " + io::human_bytes(planned.disk.bytes) + " in '" + planned.disk.folder +
                    "', which has " + io::human_bytes(planned.disk.free_bytes) + " free.");
  lines.push_back("Nothing was written; a run writes to " + run.out.string());
  std::string text = fitted(std::move(rows), terminal_width()) + "\n";
  for (const std::string& line : lines) text += wrapped(line, terminal_width());
  return text;
}

std::string minutes(double weight) { return io::formatted("%.1f", rough_seconds(weight) / 60.0); }

}  // namespace

double rough_seconds(double weight) {
  constexpr double kTokensPerSecond = 4000.0;
  return weight / kTokensPerSecond;
}

std::string dry_run(const DryRun& run, bool json) {
  if (!run.resume) results::require_new_folder(run.out, true);
  const Planned planned = plan(run);
  const Estimate time = estimate(run.config);
  return json ? json_of(run, planned, time) : text_of(run, planned, time);
}

std::string shards_listing(const config::Config& config, int shards) {
  const memory::RunContext context(config.device, config.isa, config.threads);
  const experiments::Sweep sweep = experiments::plan_sweep(config, context);
  const std::vector<int> shard_of = experiments::assign_shards(sweep.points, shards);
  std::vector<std::vector<std::string>> lines{{"shard", "sweep point", "cells", "min"}};
  std::vector<std::vector<std::string>> sums{{"shard", "points", "min"}};
  for (int shard = 1; shard <= shards; ++shard) {
    const std::string name = experiments::Shard{shard, shards}.text();
    double weight = 0.0;
    int count = 0;
    for (size_t i = 0; i < shard_of.size(); ++i) {
      if (shard_of[i] != shard) continue;
      const measure::SweepPoint& point = sweep.points[i];
      weight += experiments::weight(point);
      ++count;
      lines.push_back({name, experiments::point_key(point), std::to_string(point.cells.size()),
                       minutes(experiments::weight(point))});
    }
    sums.push_back({name, std::to_string(count), minutes(weight)});
  }
  return io::aligned_text(lines, 2) + "\n" + io::aligned_text(sums) +
         "\nMinutes are estimates for 2 cores of a Xeon; other machines differ, the shards' shares less "
         "so.\n";
}

}  // namespace kv::cli
