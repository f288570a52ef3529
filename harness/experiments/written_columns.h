// The columns and tables that experiments write, for one run and for all experiments; and the groups of columns that
// several experiments share, with their conditions.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <vector>

#include "harness/experiments/experiment.h"
#include "harness/measure/exposure.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"
#include "harness/verify/error_columns.h"
#include "harness/verify/metrics/list.h"

namespace kv::experiments {

// cells.csv with every column of every experiment; it can read any results folder.
const results::Table& cell_table();
std::span<const results::Table* const> side_tables();
// The tables of a run of this config.
results::Layout layout_of(const config::Config& config);
// The tables of a program beside the experiments, as `kvlab eval`: `writer` is its cells' experiment.
results::Layout layout_of(std::string_view writer, std::span<const ColumnGroup> columns);
// A folder's own tables, for programs that join several folders.
results::Layout layout_of(const results::Table& cells);

// The rows of a folder's tables of timed steps, one table after another.
std::vector<results::Row> timed_steps(const std::filesystem::path& folder);

// A column of these tables by its name; null if none has it.
const results::AnyColumn* step_column(std::string_view name);

// Conditions for a group of columns.
bool has_tiers(const config::Config& config, const config::ExperimentConfig& sweep);
bool evicts(const config::Config& config, const config::ExperimentConfig& sweep);
bool selects(const config::Config& config, const config::ExperimentConfig& sweep);
bool runs_model(const config::Config& config, const config::ExperimentConfig& sweep);
bool runs_on_gpu(const config::Config& config, const config::ExperimentConfig& sweep);
bool reads_in_chunks(const config::Config& config, const config::ExperimentConfig& sweep);
bool calls_functions(const config::Config& config, const config::ExperimentConfig& sweep);

// A group, a list of groups, or columns that every run has, as a list of groups.
template <size_t N>
constexpr const auto& group_list(const std::array<ColumnGroup, N>& groups) {
  return groups;
}
template <size_t N>
constexpr std::array<ColumnGroup, 1> group_list(const std::array<const results::AnyColumn*, N>& columns) {
  return {ColumnGroup{columns}};
}
constexpr std::array<ColumnGroup, 1> group_list(const ColumnGroup& group) { return {group}; }

template <size_t... Sizes>
constexpr auto concatenated(const std::array<ColumnGroup, Sizes>&... lists) {
  std::array<ColumnGroup, (Sizes + ...)> all{};
  size_t at = 0;
  ((std::copy(lists.begin(), lists.end(), all.begin() + at), at += Sizes), ...);
  return all;
}
template <class... Lists>
constexpr auto joined(const Lists&... lists) {
  return concatenated(group_list(lists)...);
}

inline constexpr std::array kOfCells{ColumnGroup{results::kCellColumns},
                                     ColumnGroup{results::kByteColumns},
                                     ColumnGroup{measure::kExposureColumns},
                                     ColumnGroup{measure::kTierBytesColumns, has_tiers},
                                     ColumnGroup{results::kKeepsAllColumns, evicts},
                                     ColumnGroup{results::kModelCellColumns, runs_model}};
inline constexpr std::array kOfKept{ColumnGroup{results::kKeptColumns}};
inline constexpr std::array kOfSteps{ColumnGroup{measure::kStepColumns}};
inline constexpr std::array kOfOutputs{
    ColumnGroup{verify::kMetricColumns}, ColumnGroup{verify::kErrorSplitColumns},
    ColumnGroup{verify::kSelectionColumns, selects}, ColumnGroup{verify::kStateColumns, runs_model}};
inline constexpr std::array kOfChoices{ColumnGroup{verify::kPositionColumns},
                                       ColumnGroup{verify::kPolicyColumns}};
inline constexpr std::array kOfComparisons{
    ColumnGroup{results::kVerdictColumns}, ColumnGroup{measure::kRatioColumns},
    ColumnGroup{measure::kRepetitionColumns}, ColumnGroup{measure::kNoiseColumns}};
inline constexpr std::array kOfModelRuns{ColumnGroup{measure::kModelRunColumns}};
inline constexpr std::array kOfReadings{ColumnGroup{results::kKeptColumns},
                                        ColumnGroup{results::kArmColumns, reads_in_chunks},
                                        ColumnGroup{measure::kLossColumns},
                                        ColumnGroup{measure::kChunkColumns, reads_in_chunks},
                                        ColumnGroup{measure::kContextColumns},
                                        ColumnGroup{results::kVerdictColumns},
                                        ColumnGroup{measure::kCallColumns, calls_functions}};

}  // namespace kv::experiments
