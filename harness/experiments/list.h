// The table of experiments: what a config's `experiment` can name. A new one is one file that defines its row,
// and one line here. Nothing else names an experiment.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "harness/config/config.h"
#include "harness/measure/sweep_point.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// One a line: the row's name is its name with a k before it.
#define KVLAB_EXPERIMENTS(EXPERIMENT) \
  EXPERIMENT(kDecode)                 \
  EXPERIMENT(kGrowth)                 \
  EXPERIMENT(kPrefill)                \
  EXPERIMENT(kBatch)                  \
  EXPERIMENT(kBudget)                 \
  EXPERIMENT(kCheckpoint)             \
  EXPERIMENT(kQuality)                \
  EXPERIMENT(kRecall)                 \
  EXPERIMENT(kGenerate)               \
  EXPERIMENT(kStream)                 \
  EXPERIMENT(kModel)                  \
  EXPERIMENT(kReplay)

struct Experiment {
  config::ExperimentInfo info;
  // Its sequences may be longer than the context that the model was trained for.
  bool beyond_trained_context = false;
  // What a cell takes beside reading its tokens, as so many tokens, for the time left: roughly.
  double fixed_tokens = 0.0;
  // Throws std::invalid_argument, before anything is written, for a sweep point that the model or its text
  // cannot give. Null where any will do.
  void (*check)(const measure::SweepPoint& point) = nullptr;
  // Lists the point's cells, with what is decided of each (cell_plan.h).
  void (*plan)(measure::SweepPoint& point);
  // Measures a sweep point and returns its rows in order; samples go to `results` as they are taken. Empty if
  // it was stopped.
  std::vector<results::CellResult> (*run)(const measure::SweepPoint& point,
                                          const measure::RunControl& control,
                                          results::ResultsFolder& results);
};

#define KVLAB_DECLARE(name) extern const Experiment name;
KVLAB_EXPERIMENTS(KVLAB_DECLARE)
#undef KVLAB_DECLARE

std::span<const Experiment* const> experiments();
// Throws std::logic_error for a name that load_config would have refused.
const Experiment& experiment_named(std::string_view name);
const Experiment& experiment_of(const measure::SweepPoint& point);

// What a config may name: these experiments, and the workloads that there are.
config::Catalog catalog();
config::Config load_config(const std::string& path, const config::Overrides& overrides);

}  // namespace kv::experiments
