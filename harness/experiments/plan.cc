#include "harness/experiments/plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "harness/experiments/experiment.h"
#include "harness/memory/machine.h"
#include "harness/memory/run_context.h"
#include "harness/results/cell_columns.h"
#include "kernels/cuda/gpu.h"

namespace kv::experiments {
namespace {

// Every combination of the experiment's own axes, with its derived values.
void plan_axes(const measure::SweepPoint& start, std::vector<measure::SweepPoint>& points) {
  const Experiment& experiment = experiment_of(start);
  std::vector<results::Row> values(1);
  for (const config::AnyAxis* axis : experiment.info.axes)
    values = axis->multiplied(values, start.experiment->settings);
  for (results::Row& at : values) {
    measure::SweepPoint point = start;
    point.axes = std::move(at);
    point.batch = static_cast<int>(point.axes[results::kBatch].value_or(1));
    point.seq_len = point.axes[results::kSeqLen].value_or(0);
    if (!experiment.derive_point || experiment.derive_point(point)) points.push_back(std::move(point));
  }
}

// The model's shape with an experiment's kv_heads and head_dim, and its text for cells.
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
    shape.geometry.latent_dim = shape.geometry.value_dim = 0;  // heads replace latent rows
  });
  expand(axes.head_dim, "d", [](Shape& shape, int value) { shape.geometry.head_dim = value; });
  expand(axes.threads, "t", [&](Shape& shape, int value) {
    if (value > memory::most_threads())
      throw std::invalid_argument(config.path + ": sweep.threads has " + std::to_string(value) +
                                  ", but OMP_THREAD_LIMIT allows " + std::to_string(memory::most_threads()));
    shape.threads = value;
  });
  return all;
}

// A workload of a sweep, and its name in cells: several texts of a model are several workloads, each named as its file.
struct NamedWorkload {
  std::string family, text, name;
};

std::vector<NamedWorkload> workloads(const config::Config& config, const config::Axes& axes) {
  std::vector<NamedWorkload> all;
  for (const std::string& family : axes.workload) {
    const std::vector<std::string>& texts = config.workload.texts;
    if (family != "model" || texts.size() < 2) {
      all.push_back({family, family == "model" && !texts.empty() ? texts.front() : "", family});
      continue;
    }
    for (const std::string& text : texts) {
      const std::string name = std::filesystem::path(text).stem();
      for (const NamedWorkload& other : all) {
        if (other.name == name)
          throw std::invalid_argument(config.path + ": workload.text has '" + other.text + "' and '" + text +
                                      "', which would both be '" + name + "' in tables; rename a file");
      }
      all.push_back({family, text, name});
    }
  }
  return all;
}

// Every combination of the axes, without cells. `opens`: the workloads, too.
Sweep multiply_axes(const config::Config& config, const memory::RunContext& context, bool opens) {
  Sweep sweep;
  std::map<std::string, workload::Source*> opened;
  for (const config::ExperimentConfig& experiment : config.experiments) {
    if (!experiment_named(experiment.kind).info.has_workload) {
      plan_axes({.context = &context,
                 .config = &config,
                 .experiment = &experiment,
                 .source = nullptr,
                 .workload = "",
                 .threads = context.threads()},
                sweep.points);
      continue;
    }
    for (const NamedWorkload& workload : workloads(config, experiment.axes)) {
      for (const Shape& shape : shapes(config, experiment.axes, context.threads())) {
        const config::Geometry& g = shape.geometry;
        workload::Source*& source = opened[workload.name + " " + std::to_string(g.kv_heads) + " " +
                                           std::to_string(g.head_dim) + " " + std::to_string(g.value_dim)];
        if (!source && opens) {
          sweep.sources.push_back(
              workload::open_source(workload.family, workload.text, config, g, context.gpu()));
          source = sweep.sources.back().get();
        }
        plan_axes({.context = &context,
                   .config = &config,
                   .experiment = &experiment,
                   .source = source,
                   .workload = workload.name,
                   .text = workload.text,
                   .threads = shape.threads,
                   .shape = shape.text},
                  sweep.points);
      }
    }
  }
  return sweep;
}

// Refuses several sweeps of one experiment that give two cells the same name. Another program's cell, whose cache is none of
// kvlab's, is asked once, though several tables name it (--server).
void refuse_cells_of_one_name(const config::Config& config, std::vector<measure::SweepPoint>& points) {
  std::set<std::string> seen;
  for (measure::SweepPoint& point : points) {
    std::erase_if(point.cells, [&](const measure::PlannedCell& cell) {
      if (seen.insert(cell.key).second) return false;
      if (cell.uncached && !cell.peer.empty()) return true;
      throw std::invalid_argument(config.path + ": two [[" + point.experiment->kind +
                                  "]] tables have the cell '" + cell.key + "'; give it to one of them");
    });
  }
}

}  // namespace

int64_t available_bytes(const memory::RunContext& context) {
  return context.gpu() ? static_cast<int64_t>(context.gpu()->info().free_bytes)
                       : memory::available_memory_bytes();
}

Sweep outline(const config::Config& config, const memory::RunContext& context) {
  return multiply_axes(config, context, /*opens=*/false);
}

measure::DiskNeed most_disk(const Sweep& sweep) {
  measure::DiskNeed most;
  for (const measure::SweepPoint& point : sweep.points) {
    std::map<size_t, measure::DiskNeed> of_group;
    for (const measure::PlannedCell& cell : point.cells) {
      if (!cell.is_measured()) continue;
      const measure::DiskNeed need = measure::disk_need(point, cell.spec);
      measure::DiskNeed& all = of_group[cell.group];
      all = {need.folder.empty() ? all.folder : need.folder, all.bytes + need.bytes,
             std::max(all.free_bytes, need.free_bytes)};
    }
    for (const auto& [group, need] : of_group) {
      if (need.bytes > most.bytes) most = need;
    }
  }
  return most;
}

Sweep plan_sweep(const config::Config& config, const memory::RunContext& context) {
  Sweep sweep = multiply_axes(config, context, /*opens=*/true);
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
