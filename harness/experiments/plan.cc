#include "harness/experiments/plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "harness/config/request_lengths.h"
#include "harness/experiments/experiment.h"
#include "harness/experiments/recall.h"
#include "harness/experiments/replay.h"
#include "harness/memory/machine.h"
#include "kernels/cuda/gpu.h"

namespace kv::experiments {
namespace {

// Every sequence of a point has the same length.
void plan_even(measure::SweepPoint point, std::vector<measure::SweepPoint>& points) {
  const config::Axes& axes = point.experiment->axes;
  for (const int batch : axes.batch) {
    for (const int64_t seq_len : axes.seq_len) {
      point.batch = batch;
      point.seq_len = seq_len;
      points.push_back(point);
    }
  }
}

void plan_ragged(measure::SweepPoint point, std::vector<measure::SweepPoint>& points) {
  const config::Axes& axes = point.experiment->axes;
  for (const int batch : axes.batch) {
    for (const std::string& lengths : axes.lengths) {
      // A list is the same batch whatever the axis says.
      if (config::is_length_list(lengths) && batch != axes.batch.front()) continue;
      point.lengths = lengths;
      point.tokens = config::draw_lengths(lengths, batch, point.config->seed);
      point.batch = static_cast<int>(point.tokens.size());
      point.seq_len = *std::max_element(point.tokens.begin(), point.tokens.end());
      points.push_back(point);
    }
  }
}

// The length follows from what is repeated where.
void plan_repeats(measure::SweepPoint point, std::vector<measure::SweepPoint>& points) {
  const config::Axes& axes = point.experiment->axes;
  for (const int batch : axes.batch) {
    for (const int64_t passage : axes.passage) {
      for (const int64_t distance : axes.distance) {
        point.batch = batch;
        point.passage = passage;
        point.distance = distance;
        point.seq_len = Recall{distance, passage}.length();
        points.push_back(point);
      }
    }
  }
}

// Of a trace, or of drawn requests where there is none, on every machine.
void plan_requests(measure::SweepPoint point, std::vector<measure::SweepPoint>& points) {
  const config::ReplayConfig& r = point.experiment->replay;
  const bool drawn = r.trace.empty();
  const std::vector<std::string> none{drawn ? "poisson(1)" : "trace"};
  point.batch = r.max_running;
  point.seq_len = longest_request(*point.config);
  for (const std::string& trace : drawn ? std::vector<std::string>{""} : r.trace) {
    for (const std::string& arrivals : r.arrivals.empty() ? none : r.arrivals) {
      for (const std::string& memory : r.memory) {
        for (const int64_t step_tokens : r.step_tokens) {
          point.workload = drawn ? "drawn" : std::filesystem::path(trace).filename().string();
          point.trace = trace;
          point.arrivals = arrivals;
          point.machine_memory = memory;
          point.step_tokens = step_tokens;
          point.shape = " " + arrivals + " " + memory + " c" + std::to_string(step_tokens);
          points.push_back(point);
        }
      }
    }
  }
}

void plan_lengths(const measure::SweepPoint& point, std::vector<measure::SweepPoint>& points) {
  switch (experiment_of(point).info.length_axis) {
    case config::LengthAxis::kSeqLen:
      return plan_even(point, points);
    case config::LengthAxis::kLengths:
      return plan_ragged(point, points);
    case config::LengthAxis::kDistance:
      return plan_repeats(point, points);
    case config::LengthAxis::kRequests:
      return;  // they have no workload: multiply_axes
  }
}

// The model's shape with an experiment's own kv_heads and head_dim in place of it, and how cells say so.
struct Shape {
  config::Geometry geometry;
  int threads;
  std::string text;
};

std::vector<Shape> shapes(const config::Config& config, const config::Axes& axes, int threads) {
  std::vector<Shape> all{{config.geometry, threads, ""}};
  const auto expand = [&](const std::vector<int>& values, const char* letter, auto set) {
    std::vector<Shape> expanded;
    for (const Shape& shape : all) {
      for (const int value : values) {
        expanded.push_back(shape);
        set(expanded.back(), value);
        expanded.back().text.append(" ").append(letter).append(std::to_string(value));
      }
    }
    if (!values.empty()) all = std::move(expanded);
  };
  expand(axes.kv_heads, "kv", [](Shape& shape, int value) {
    shape.geometry.kv_heads = value;
    shape.geometry.latent_dim = shape.geometry.value_dim = 0;  // heads in place of latent rows
  });
  expand(axes.head_dim, "d", [](Shape& shape, int value) { shape.geometry.head_dim = value; });
  expand(axes.threads, "t", [](Shape& shape, int value) { shape.threads = value; });
  return all;
}

// Every combination of the axes, without its cells.
Sweep multiply_axes(const config::Config& config, const memory::RunContext& context) {
  Sweep sweep;
  std::map<std::string, workload::Source*> opened;
  for (const config::ExperimentConfig& experiment : config.experiments) {
    if (experiment_named(experiment.kind).info.length_axis == config::LengthAxis::kRequests) {
      plan_requests({.context = &context,
                     .config = &config,
                     .experiment = &experiment,
                     .source = nullptr,
                     .workload = "",
                     .threads = context.threads()},
                    sweep.points);
      continue;
    }
    for (const std::string& workload : experiment.axes.workload) {
      for (const Shape& shape : shapes(config, experiment.axes, context.threads())) {
        const config::Geometry& g = shape.geometry;
        workload::Source*& source = opened[workload + " " + std::to_string(g.kv_heads) + " " +
                                           std::to_string(g.head_dim) + " " + std::to_string(g.value_dim)];
        if (!source) {
          sweep.sources.push_back(workload::open_source(workload, config, g, context.gpu()));
          source = sweep.sources.back().get();
        }
        plan_lengths({.context = &context,
                      .config = &config,
                      .experiment = &experiment,
                      .source = source,
                      .workload = workload,
                      .threads = shape.threads,
                      .shape = shape.text},
                     sweep.points);
      }
    }
  }
  return sweep;
}

// Several sweeps of one experiment may meet in a cell, which then could not be distinguished from the other's.
void refuse_cells_of_one_name(const config::Config& config, const std::vector<measure::SweepPoint>& points) {
  std::set<std::string> seen;
  for (const measure::SweepPoint& point : points) {
    for (const measure::PlannedCell& cell : point.cells) {
      if (!seen.insert(cell.key).second)
        throw std::invalid_argument(config.path + ": two [[" + point.experiment->kind +
                                    "]] tables have the cell '" + cell.key + "'; give it to one of them");
    }
  }
}

// What the device, or the machine, has left once models and dumps are open.
int64_t available_bytes(const memory::RunContext& context) {
  return context.gpu() ? static_cast<int64_t>(context.gpu()->info().free_bytes)
                       : memory::available_memory_bytes();
}

}  // namespace

Sweep plan_sweep(const config::Config& config, const memory::RunContext& context) {
  Sweep sweep = multiply_axes(config, context);
  for (const measure::SweepPoint& point : sweep.points) {
    if (const auto check = experiment_of(point).check) check(point);
  }
  const auto available = static_cast<double>(available_bytes(context));
  for (measure::SweepPoint& point : sweep.points) {
    const config::MeasureConfig& measure = point.experiment->measure;
    point.memory_bytes = static_cast<int64_t>(available * measure.memory_share);
    point.cache_bytes = std::min(point.memory_bytes, measure.memory);
    experiment_of(point).plan(point);
  }
  refuse_cells_of_one_name(config, sweep.points);
  return sweep;
}

double weight(const measure::SweepPoint& point) {
  return static_cast<double>(point.experiment->axes.variants.size() * static_cast<size_t>(point.batch)) *
         (static_cast<double>(point.seq_len) + experiment_of(point).fixed_tokens);
}

}  // namespace kv::experiments
