#include "harness/experiments/driver.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/experiments/experiment.h"
#include "harness/experiments/plan.h"
#include "harness/experiments/written_columns.h"
#include "harness/functions/functions.h"
#include "harness/io/bytes.h"
#include "harness/io/hash.h"
#include "harness/io/model_files.h"
#include "harness/measure/benchmark_json.h"
#include "harness/measure/cell.h"
#include "harness/measure/environment.h"
#include "harness/measure/noise.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/machine.h"
#include "harness/memory/run_context.h"
#include "harness/results/cell_columns.h"
#include "kernels/cpu/isa.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// The model's file or folder if a model runs; else the name of its geometry.
std::string model_name(const config::Config& config) {
  const std::filesystem::path path(config.workload.model);
  if (path.empty() || !config.geometry.name.empty()) return config.geometry.name;
  if (io::is_gguf(path)) return path.stem();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

nlohmann::json describe(const config::Config& config, const memory::RunContext& context) {
  nlohmann::json e = measure::describe_environment();
  e["threads"] = context.threads();
  e["device"] = measure::describe_device(context.gpu());
  e["seed"] = config.seed;
  e["config"] = {{"name", config.name},
                 {"hash", io::hash_text(io::hash(config.as_run))},
                 {"title", config.title},
                 {"path", std::filesystem::path(config.path).filename()}};
  e["model"] = {{"name", model_name(config)}};
  if (!config.workload.model.empty()) {
    const auto described = [](const std::string& text) -> nlohmann::json {
      const std::filesystem::path file = io::text_to_read(text);
      return {{"name", file.filename()}, {"hash", io::hash_text(io::hash_of_file(file))}};
    };
    const std::vector<std::string>& texts = config.workload.texts;
    if (texts.size() < 2)
      e["text"] = described(texts.empty() ? "" : texts.front());
    else
      for (const std::string& text : texts) e["text"].push_back(described(text));
  }
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  e["gomp_spincount"] = variable("GOMP_SPINCOUNT");
  e["glibc_tunables"] = variable("GLIBC_TUNABLES");
  e["allocator"] = config.experiments.front().measure.allocator;
  return e;
}

// True if every cell of the point is on disk already. One that ran out of memory or disk, for which the plan has room, is
// not finished.
bool is_finished(const measure::SweepPoint& point, const results::ResultsFolder& results) {
  return std::all_of(point.cells.begin(), point.cells.end(), [&](const measure::PlannedCell& cell) {
    const results::Row* row = results.find_cell(cell.key);
    return row && !(cell.is_measured() && (*row)[results::kStatus] == results::Status::kOutOfMemory);
  });
}

// Prints one line a cell, but one line for all cells with the same reason if there are more than a few.
void note_rows(const std::vector<results::Row>& rows, const RunOptions& options) {
  std::vector<std::pair<std::string, std::set<std::string>>> cells_of;  // by text
  for (const results::Row& row : rows) {
    if (row[results::kStatus] == results::Status::kOk) continue;
    const std::string said = text_of(row[results::kStatus]) + ": " + row[results::kReason];
    auto found =
        std::find_if(cells_of.begin(), cells_of.end(), [&](const auto& c) { return c.first == said; });
    if (found == cells_of.end()) found = cells_of.insert(found, {said, {}});
    found->second.insert(row[results::kCell]);
  }
  for (const auto& [said, cells] : cells_of) {
    constexpr size_t kFew = 8;
    if (cells.size() <= kFew) {
      for (const std::string& cell : cells) options.note(cell + ": " + said);
    } else {
      options.note(*cells.begin() + " and " + std::to_string(cells.size() - 1) + " more: " + said);
    }
  }
}

std::string describe_point(const measure::SweepPoint& point) {
  std::string text = point.experiment->kind + " " + point.workload + ", batch " +
                     std::to_string(point.batch) + ", " + std::to_string(point.seq_len) + " tokens";
  for (const config::AnyAxis* axis : experiment_of(point).info.axes) {
    if (axis != &config::kBatch && axis != &config::kSeqLen && !axis->column.title.empty())
      text += ", " + results::titled(axis->column, point.axes.text(axis->column));
  }
  return text;
}

// The point's rows. An exception fails this point and the sweep continues, except for a user's mistake or results
// that cannot be written.
std::vector<results::Row> measure_point(const measure::SweepPoint& point, const measure::RunControl& control,
                                        results::ResultsFolder& results) {
  try {
    return experiment_of(point).run(point, control, results);
  } catch (const std::invalid_argument&) {
    throw;
  } catch (...) {
    std::vector<results::Row> rows;
    for (const auto& cell : measure::make_cells(point)) {
      if (measure::runs(*cell)) measure::mark_exception(*cell);
      rows.emplace_back().copy(cell->result, results.cell_table().columns);
    }
    return rows;
  }
}

std::string first_noise(const std::vector<results::Row>& rows) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [](const auto& r) { return !r[measure::kNoise].empty(); });
  return row == rows.end() ? "" : (*row)[measure::kNoise];
}

// Returns false if stopped.
bool run_point(const measure::SweepPoint& point, const measure::RunControl& control,
               const RunOptions& options, results::ResultsFolder& results) {
  // Only cells that were measured together are comparable, so a half-written sweep point is measured again.
  std::vector<std::string> keys;
  for (const measure::PlannedCell& cell : point.cells) keys.push_back(cell.key);
  results.drop_cells(keys);
  const memory::ThreadCount threads(point.threads);
  std::vector<results::Row> rows;
  bool noisy = true;
  for (int retries = 0; noisy && retries <= point.experiment->measure.retries; ++retries) {
    if (retries > 0) results.drop_unfinished();
    // The published speed-ups of in-place growth depend on this state, so it is part of a result. Memory kept by
    // earlier points is returned first: it would count against this point's.
    memory::keep_freed_memory(point.experiment->measure.allocator == "warm");
    const measure::NoiseMeter meter;
    rows = measure_point(point, control, results);
    if (rows.empty()) return false;
    for (results::Row& row : rows) {
      row[results::kHost] = measure::host_name();
      if (experiment_of(point).info.needs_model) row[measure::kForwardDevice] = "cpu";
    }
    noisy = measure::mark_noise(rows, meter);
    if (noisy && retries < point.experiment->measure.retries)
      options.note(describe_point(point) + ": measuring again: " + first_noise(rows));
  }
  for (const results::Row& row : rows) {
    const std::string_view column = row.value_outside(results.cell_table().columns);
    if (!column.empty())
      options.note(row[results::kCell] + ": internal error: cells.csv lacks the value of " +
                   std::string(column) + ", which the experiment does not declare");
  }
  results.add_cells(rows);
  note_rows(rows, options);
  return true;
}

// True if every sweep point is on disk; false if stopped before.
bool run_points(const std::vector<measure::SweepPoint>& points, const RunOptions& options,
                results::ResultsFolder& results) {
  double total = 0.0, done = 0.0;
  for (const measure::SweepPoint& point : points) total += weight(point);
  int index = 0;
  for (const measure::SweepPoint& point : points) {
    const std::string what = describe_point(point);  // told after every layer of a step
    const double own = weight(point);
    ++index;
    if (is_finished(
            point,
            results)) {  // before any progress is told: an earlier run's work says nothing of this one's speed
      done += own;
      continue;
    }
    const auto progress = [&, index](double part) {
      options.progress(index - 1, static_cast<int>(points.size()), what, done + part * own, total);
    };
    progress(0);
    if (!run_point(point, {options.stop, progress}, options, results)) return false;
    done += own;
  }
  return true;
}

// Sizes are known without learned codebooks and users' functions, answers are not. Returns the functions by their texts.
std::map<std::string, std::shared_ptr<UserFunction>> open_files(const Sweep& sweep) {
  std::map<std::string, std::shared_ptr<UserFunction>> functions;
  open_function = functions::open;
  for (const measure::SweepPoint& point : sweep.points) {
    for (const measure::PlannedCell& cell : point.cells) {
      if (cell.uncached) continue;
      cell.spec.any([&](const Spec& spec) {
        codec_of(spec).make(spec.codec).require_codebooks();
        if (!cell.is_measured()) return false;
        for (const std::string& function : functions_of(spec)) {
          std::shared_ptr<UserFunction>& opened = functions[function];
          if (!opened) opened = functions::open(function);
        }
        return false;
      });
    }
  }
  return functions;
}

void note_disk(const Sweep& sweep, const RunOptions& options) {
  const measure::DiskNeed most = most_disk(sweep);
  if (most.bytes > 0 && options.note)
    options.note("needs up to " + io::human_bytes(most.bytes) + " of disk in '" + most.folder +
                 "', which has " + io::human_bytes(most.free_bytes) + " free");
}

}  // namespace

RunOutcome run_config(const config::Config& config, const RunOptions& options) {
  const memory::RunContext context(config.device, config.isa, config.threads);
  const memory::ThreadCount threads(context.threads());
  measure::require_fine_clock();
  // Every possible mistake of the user is checked before anything is written.
  Sweep sweep = plan_sweep(config, context);
  const auto functions = open_files(sweep);  // their processes end with the run
  keep_shard(options.shard, sweep.points);
  note_disk(sweep, options);
  if (const std::string why = cpu::why_isas_are_missing(); !why.empty() && options.note) options.note(why);
  nlohmann::json environment = describe(config, context);
  environment["shard"] = options.shard.text();
  for (const auto& [function, opened] : functions)
    environment["policies"][function] = io::hash_text(io::hash_of_file(functions::file_of(function)));
  if (options.resume) results::require_same_environment(options.out, environment);
  results::ResultsFolder results(options.out, config.as_run, layout_of(config), options.resume);
  try {
    environment["started"] = results.started().value_or(utc_now());
    results.write_environment(environment);
    const bool finished = run_points(sweep.points, options, results);
    if (std::vector<results::Row> cells = results.cells(); judge_cells(cells) > 0) results.set_cells(cells);
    environment["finished"] = finished ? utc_now() : "";
    results.write_environment(environment);
    results.write("benchmark.json", measure::benchmark_json(timed_steps(options.out), environment));
    return {finished, results.cells()};
  } catch (...) {
    results.discard_if_empty();
    throw;
  }
}

}  // namespace kv::experiments
