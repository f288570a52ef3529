#include "harness/driver.h"

#include <malloc.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/bytes.h"
#include "harness/device.h"
#include "harness/environment.h"
#include "harness/experiments.h"
#include "harness/quality.h"
#include "harness/request_lengths.h"
#include "harness/sources.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/gpu.h"

namespace kv {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// glibc gives large freed blocks back to the system, so that each large allocation is new pages, zeroed and
// faulted in one by one; "warm" keeps them. The published speed-ups of in-place growth lie between the two,
// so the state is part of a result. What earlier blocks kept goes back first: it would count against this
// one's memory.
void set_allocator(const std::string& state) {
#ifdef __GLIBC__
  const bool warm = state == "warm";
  mallopt(M_MMAP_THRESHOLD, warm ? std::numeric_limits<int>::max() : 128 * 1024);
  mallopt(M_TRIM_THRESHOLD, warm ? std::numeric_limits<int>::max() : 128 * 1024);
  malloc_trim(0);
#else
  (void)state;
#endif
}

struct Sweep {
  std::vector<BlockPlan> blocks;
  std::vector<std::unique_ptr<Source>> sources;
};

// Every sequence of a block has the same length.
void plan_even(BlockPlan plan, std::vector<BlockPlan>& blocks) {
  const Axes& axes = plan.experiment->axes;
  for (const int batch : axes.batch) {
    for (const int64_t seq_len : axes.seq_len) {
      plan.batch = batch;
      plan.seq_len = seq_len;
      blocks.push_back(plan);
    }
  }
}

void plan_ragged(BlockPlan plan, std::vector<BlockPlan>& blocks) {
  const Axes& axes = plan.experiment->axes;
  for (const int batch : axes.batch) {
    for (const std::string& lengths : axes.lengths) {
      // A list is the same batch whatever the axis says.
      if (is_length_list(lengths) && batch != axes.batch.front()) continue;
      plan.lengths = lengths;
      plan.tokens = draw_lengths(lengths, batch, plan.config->seed);
      plan.batch = static_cast<int>(plan.tokens.size());
      plan.seq_len = *std::max_element(plan.tokens.begin(), plan.tokens.end());
      blocks.push_back(plan);
    }
  }
}

// The length follows from what is repeated where.
void plan_repeats(BlockPlan plan, std::vector<BlockPlan>& blocks) {
  const Axes& axes = plan.experiment->axes;
  for (const int batch : axes.batch) {
    for (const int64_t passage : axes.passage) {
      for (const int64_t distance : axes.distance) {
        plan.batch = batch;
        plan.passage = passage;
        plan.distance = distance;
        plan.seq_len = Recall{distance, passage}.length();
        blocks.push_back(plan);
      }
    }
  }
}

void plan_blocks(const BlockPlan& plan, std::vector<BlockPlan>& blocks) {
  switch (experiment_named(plan.experiment->kind).axis) {
    case LengthAxis::kSeqLen:
      return plan_even(plan, blocks);
    case LengthAxis::kLengths:
      return plan_ragged(plan, blocks);
    case LengthAxis::kDistance:
      return plan_repeats(plan, blocks);
  }
}

// The model's shape with an experiment's own kv_heads and head_dim in place of it, and how cells say so.
struct Shape {
  Geometry geometry;
  int threads;
  std::string text;
};

std::vector<Shape> shapes(const Config& config, const Axes& axes, int threads) {
  std::vector<Shape> all{{config.geometry, threads, ""}};
  const auto expand = [&](const std::vector<int>& values, const char* letter, auto set) {
    std::vector<Shape> expanded;
    for (const Shape& shape : all) {
      for (const int value : values) {
        expanded.push_back(shape);
        set(expanded.back(), value);
        expanded.back().text += " " + (letter + std::to_string(value));
      }
    }
    if (!values.empty()) all = std::move(expanded);
  };
  expand(axes.kv_heads, "kv", [](Shape& shape, int value) { shape.geometry.kv_heads = value; });
  expand(axes.head_dim, "d", [](Shape& shape, int value) { shape.geometry.head_dim = value; });
  expand(axes.threads, "t", [](Shape& shape, int value) { shape.threads = value; });
  return all;
}

// Several sweeps of one experiment may meet in a cell, which then could not be told from the other's.
void refuse_cells_of_one_name(const Config& config, const std::vector<BlockPlan>& blocks) {
  std::set<std::string> seen;
  for (const BlockPlan& plan : blocks) {
    for (const std::string& key : experiment_named(plan.experiment->kind).keys(plan)) {
      if (!seen.insert(key).second)
        throw std::invalid_argument(config.path + ": two [[" + plan.experiment->kind +
                                    "]] tables have the cell '" + key + "'; give it to one of them");
    }
  }
}

Sweep plan_sweep(const Config& config, int threads) {
  Sweep sweep;
  std::map<std::string, Source*> opened;
  for (const ExperimentConfig& experiment : config.experiments) {
    for (const std::string& workload : experiment.axes.workload) {
      for (const Shape& shape : shapes(config, experiment.axes, threads)) {
        const Geometry& g = shape.geometry;
        Source*& source =
            opened[workload + " " + std::to_string(g.kv_heads) + " " + std::to_string(g.head_dim)];
        if (!source) {
          sweep.sources.push_back(open_source(workload, config, g));
          source = sweep.sources.back().get();
        }
        BlockPlan block{&config, &experiment, source, workload, 0, 0, shape.threads};
        block.shape = shape.text;
        plan_blocks(block, sweep.blocks);
      }
    }
  }
  for (const BlockPlan& plan : sweep.blocks) {
    if (const auto check = experiment_named(plan.experiment->kind).check) check(plan);
  }
  refuse_cells_of_one_name(config, sweep.blocks);
  return sweep;
}

// Roughly how long a block takes, for the time left: the fixed part of a timed block counts as some thousand
// tokens. A model only reads.
double weight(const BlockPlan& plan) {
  const double fixed = experiment_named(plan.experiment->kind).needs_model() ? 0.0 : 4000.0;
  return static_cast<double>(plan.experiment->axes.variants.size() * static_cast<size_t>(plan.batch)) *
         (static_cast<double>(plan.seq_len) + fixed);
}

// The file or folder, where a model is run; else whose geometry it is.
std::string model_name(const Config& config) {
  const std::filesystem::path path(config.workload.model);
  if (path.empty() || !config.geometry.name.empty()) return config.geometry.name;
  if (path.extension() == ".bin") return path.stem();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

nlohmann::json describe(const Config& config, int threads) {
  nlohmann::json e = describe_environment();
  e["threads"] = threads;
  e["device"] = describe_device();
  e["seed"] = config.seed;
  e["config"] = {{"name", config.name},
                 {"title", config.title},
                 {"path", std::filesystem::path(config.path).filename()}};
  e["model"] = {{"name", model_name(config)}};
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  e["gomp_spincount"] = variable("GOMP_SPINCOUNT");
  e["glibc_tunables"] = variable("GLIBC_TUNABLES");
  e["allocator"] = config.experiments.front().measure.allocator;
  return e;
}

// True if every cell of the block is on disk already.
bool is_finished(const BlockPlan& plan, const ResultsFolder& results) {
  const std::vector<std::string> keys = experiment_named(plan.experiment->kind).keys(plan);
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return results.has_cell(key); });
}

// A line for each cell, but one for all of those where more than a few have the same reason.
void note_rows(const std::vector<Row>& rows, const RunOptions& options) {
  std::vector<std::pair<std::string, std::set<std::string>>> cells_of;  // by what is said of them
  for (const Row& row : rows) {
    if (row.text("status") == "ok") continue;
    const std::string said = row.text("status") + ": " + row.text("reason");
    auto found =
        std::find_if(cells_of.begin(), cells_of.end(), [&](const auto& c) { return c.first == said; });
    if (found == cells_of.end()) found = cells_of.insert(found, {said, {}});
    found->second.insert(row.text("cell"));
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

// True if every block is on disk; false if it was stopped before.
bool run_blocks(const std::vector<BlockPlan>& blocks, const RunOptions& options, ResultsFolder& results) {
  const int64_t available =
      device_gpu() ? static_cast<int64_t>(device_gpu()->info().memory_bytes) : available_memory_bytes();
  double total = 0.0, done = 0.0;
  for (const BlockPlan& plan : blocks) total += weight(plan);
  int index = 0;
  for (const BlockPlan& plan : blocks) {
    const MeasureConfig& measure = plan.experiment->measure;
    const auto progress = [&, index](double share) {
      options.progress(index, static_cast<int>(blocks.size()),
                       plan.experiment->kind + " " + plan.workload + ", batch " + std::to_string(plan.batch) +
                           ", " + std::to_string(plan.seq_len) + " tokens",
                       done + share * weight(plan), total);
    };
    progress(0);
    ++index;
    if (!is_finished(plan, results)) {
      // Cells of a block are only comparable if they were measured together, so a half-written block is
      // measured again.
      const Experiment& experiment = experiment_named(plan.experiment->kind);
      results.drop_cells(experiment.keys(plan));
      omp_set_num_threads(plan.threads);
      set_allocator(measure.allocator);
      const int64_t limit = static_cast<int64_t>(static_cast<double>(available) * measure.memory_share);
      const std::vector<Row> rows = experiment.run(plan, {limit, options.stop, progress}, results);
      if (rows.empty()) return false;
      results.add_cells(rows);
      note_rows(rows, options);
    }
    done += weight(plan);
  }
  return true;
}

}  // namespace

RunOutcome run_config(const Config& config, const RunOptions& options) {
  const int threads = config.threads > 0 ? config.threads : omp_get_num_procs();
  omp_set_num_threads(threads);
  force_isa(config.isa);
  use_device(config.device);
  // Everything that a user can have got wrong is looked at before anything is written.
  const Sweep sweep = plan_sweep(config, threads);
  ResultsFolder results(options.out, config.as_run, options.resume);
  try {
    nlohmann::json environment = describe(config, threads);
    environment["started"] = results.started().value_or(utc_now());
    results.write_environment(environment);
    const bool finished = run_blocks(sweep.blocks, options, results);
    environment["finished"] = finished ? utc_now() : "";
    results.write_environment(environment);
    results.write_benchmark_json(environment);
    return {finished, results.cells()};
  } catch (...) {
    results.discard_if_empty();
    throw;
  }
}

}  // namespace kv
