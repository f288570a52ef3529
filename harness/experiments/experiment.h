// An experiment's description, and access to the table of list.h. Callers need no recompilation when an experiment is
// added.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "harness/config/config.h"
#include "harness/experiments/cell_text.h"
#include "harness/measure/sweep_point.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// Columns that belong together. A run has them if one of its sweeps satisfies `when`, or always without `when`.
struct ColumnGroup {
  std::span<const results::AnyColumn* const> columns;
  bool (*when)(const config::Config& config, const config::ExperimentConfig& sweep) = nullptr;
};

struct Experiment {
  config::ExperimentInfo info;
  // Derives the rest of a point, such as its length, from its axes' values; returns false if another combination
  // gives the same point.
  bool (*derive_point)(measure::SweepPoint& point) = nullptr;
  // Its sequences may exceed the model's trained context.
  bool beyond_trained_context = false;
  // Rough cost of a cell beside reading its tokens, in tokens, for the estimate of remaining time.
  double fixed_tokens = 0.0;
  // Tokens of a sequence's first step. A cell holds `batch` sequences of seq_len tokens each, so its bytes are a closed form.
  // Null: its sequences are others, or cells differ.
  int64_t (*first_step)(const measure::SweepPoint& point) = nullptr;
  // The sequences of a batch follow one another: a cell holds one.
  bool one_at_a_time = false;
  // Each step that a cell counts is a row of a table of timed steps.
  bool tables_every_step = false;
  // Throws std::invalid_argument, before anything is written, for a sweep point that the model or its text cannot
  // provide. Null: any point will do.
  void (*check)(const measure::SweepPoint& point) = nullptr;
  // The columns of cells.csv that it writes, in order, and its side tables.
  std::span<const ColumnGroup> columns;
  std::span<const results::Table* const> tables = {};
  // The columns of a sweep point's table on the terminal, the measure of exactness, and a sentence about all cells,
  // which may be empty.
  std::span<const TableColumn> table = kStepTable;
  const ErrorMeasure* error = &kOutputError;
  std::string (*sentence)(std::span<const results::Row* const> cells) = nullptr;
  // All steps of a cell are at one length, so that a clock can follow their median.
  bool has_steady_steps = false;
  // Its losses cover whole windows of a text, so that they stand for a cache's quality.
  bool reads_whole_windows = false;
  // A cell's name ends with "prefill stored" if each cache read its prompt.
  bool names_prefill = false;
  // It calls users' functions (harness/functions), whose time is not its caches'.
  bool calls_functions = false;
  // Lists the point's cells with the decisions on each (cell_plan.h).
  void (*plan)(measure::SweepPoint& point);
  // Measures a sweep point and returns its rows in order; samples go to `results` at once. Empty if stopped.
  std::vector<results::Row> (*run)(const measure::SweepPoint& point, const measure::RunControl& control,
                                   results::ResultsFolder& results);
  // Sets the verdicts that depend on all of its cells in a run, from their other columns. Null: each sweep point has its own.
  void (*judge)(std::span<results::Row* const> cells) = nullptr;
};

std::span<const Experiment* const> experiments();
// Null for an unknown name, such as that of `kvlab eval`'s cells.
const Experiment* find_experiment(std::string_view name);
// Lets experiments judge all cells of a run, and returns how many they judged.
size_t judge_cells(std::vector<results::Row>& cells);
// Keeps the cells of experiments that have a fact.
std::vector<results::Row> cells_with(bool Experiment::*fact, std::vector<results::Row> cells);
// Throws std::logic_error for a name that load_config would refuse.
const Experiment& experiment_named(std::string_view name);
const Experiment& experiment_of(const measure::SweepPoint& point);

// The names that a config may use: these experiments and all workloads.
config::Catalog catalog();
config::Config load_config(const std::string& path, const config::Overrides& overrides);

}  // namespace kv::experiments
