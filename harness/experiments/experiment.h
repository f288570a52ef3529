// What an experiment is, and how the table of list.h is asked. Who asks is not compiled again when an experiment is added.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "harness/config/config.h"
#include "harness/measure/sweep_point.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

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

std::span<const Experiment* const> experiments();
// Throws std::logic_error for a name that load_config would have refused.
const Experiment& experiment_named(std::string_view name);
const Experiment& experiment_of(const measure::SweepPoint& point);

// What a config may name: these experiments, and the workloads that there are.
config::Catalog catalog();
config::Config load_config(const std::string& path, const config::Overrides& overrides);

}  // namespace kv::experiments
