// What an experiment is, and how the table of list.h is asked. Who asks is not compiled again when an experiment is added.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "harness/config/config.h"
#include "harness/experiments/cell_text.h"
#include "harness/measure/sweep_point.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// Columns that come together; a run has them when one of its sweeps does, or always where that is not said.
struct ColumnGroup {
  std::span<const results::AnyColumn* const> columns;
  bool (*when)(const config::Config& config, const config::ExperimentConfig& sweep) = nullptr;
};

struct Experiment {
  config::ExperimentInfo info;
  // Sets what follows from the values of the point's axes, as its length; false for a combination that is another's again.
  bool (*place)(measure::SweepPoint& point) = nullptr;
  // Its sequences may be longer than the context that the model was trained for.
  bool beyond_trained_context = false;
  // What a cell takes beside reading its tokens, as so many tokens, for the time left: roughly.
  double fixed_tokens = 0.0;
  // Tokens of a sequence before its steps of one token, each of which is a row of a table that times steps. Null where steps
  // are others.
  int64_t (*prompt_tokens)(const measure::SweepPoint& point) = nullptr;
  // Throws std::invalid_argument, before anything is written, for a sweep point that the model or its text
  // cannot give. Null where any will do.
  void (*check)(const measure::SweepPoint& point) = nullptr;
  // The columns of cells.csv that it writes, in order, and its tables beside cells.csv.
  std::span<const ColumnGroup> columns;
  std::span<const results::Table* const> tables = {};
  // The columns of a sweep point's table on the terminal, how exact a cell is, and a sentence about all cells; empty where there
  // is none to say.
  std::span<const TableColumn> table = kStepTable;
  const ErrorMeasure* error = &kOutputError;
  std::string (*sentence)(std::span<const results::Row* const> cells) = nullptr;
  // All steps of a cell are at one length, so that a clock can follow their median.
  bool has_steady_steps = false;
  // Its losses are of whole windows of a text, so that they stand for a cache's quality.
  bool reads_whole_windows = false;
  // Lists the point's cells, with what is decided of each (cell_plan.h).
  void (*plan)(measure::SweepPoint& point);
  // Measures a sweep point and returns its rows in order; samples go to `results` as they are taken. Empty if
  // it was stopped.
  std::vector<results::Row> (*run)(const measure::SweepPoint& point, const measure::RunControl& control,
                                   results::ResultsFolder& results);
};

std::span<const Experiment* const> experiments();
// Null where there is none, as for cells of `kvlab eval`.
const Experiment* find_experiment(std::string_view name);
// Keeps the cells of experiments that have a fact.
std::vector<results::Row> cells_with(bool Experiment::*fact, std::vector<results::Row> cells);
// Throws std::logic_error for a name that load_config would have refused.
const Experiment& experiment_named(std::string_view name);
const Experiment& experiment_of(const measure::SweepPoint& point);

// What a config may name: these experiments, and the workloads that there are.
config::Catalog catalog();
config::Config load_config(const std::string& path, const config::Overrides& overrides);

}  // namespace kv::experiments
