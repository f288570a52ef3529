// The columns and tables that experiments write: of one run, and of all experiments together. And the groups of columns
// that several experiments share, with the runs that have them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/experiments/experiment.h"
#include "harness/measure/peer_columns.h"
#include "harness/measure/prediction_columns.h"
#include "harness/measure/roofline_columns.h"
#include "harness/measure/sample_columns.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/results_folder.h"
#include "harness/verify/error_columns.h"
#include "harness/verify/metrics/list.h"

namespace kv::experiments {

// cells.csv with every column of every experiment: any results folder can be read with it.
const results::Table& cell_table();
std::span<const results::Table* const> side_tables();
// What a run of this config writes; `kvlab eval`, whose columns are `columns`.
results::Layout layout_of(const config::Config& config);
results::Layout layout_of(std::span<const ColumnGroup> columns,
                          std::span<const results::Table* const> tables);
// A folder's own tables, as those that put several together write them.
results::Layout layout_of(const results::Table& cells);

// The rows of a folder's tables that time steps, one table after another.
std::vector<results::Row> timed_steps(const std::filesystem::path& folder);

// A column of these tables by its name; null where none has it.
const results::AnyColumn* step_column(std::string_view name);

// When a run has a group of columns.
bool has_tiers(const config::Config& config, const config::ExperimentConfig& sweep);
bool evicts(const config::Config& config, const config::ExperimentConfig& sweep);
bool selects(const config::Config& config, const config::ExperimentConfig& sweep);
bool runs_on_gpu(const config::Config& config, const config::ExperimentConfig& sweep);
bool reads_in_chunks(const config::Config& config, const config::ExperimentConfig& sweep);

// Every experiment's first.
inline constexpr ColumnGroup kCells{results::kCellColumns}, kBytes{results::kByteColumns},
    kTierBytes{measure::kTierBytesColumns, has_tiers}, kKeepsAll{results::kKeepsAllColumns, evicts},
    kKept{results::kKeptColumns};
// Steps.
inline constexpr ColumnGroup kSteps{measure::kStepColumns}, kTierReads{measure::kTierReadColumns, has_tiers},
    kRoofline{measure::kRooflineColumns}, kRatios{measure::kRatioColumns},
    kVerdicts{results::kVerdictColumns}, kRepetitions{measure::kRepetitionColumns},
    kNoise{measure::kNoiseColumns};
// Outputs against FP64.
inline constexpr ColumnGroup kMetrics{verify::kMetricColumns}, kErrors{verify::kErrorSplitColumns},
    kSelectionErrors{verify::kSelectionErrorColumns, selects},
    kSelections{verify::kSelectionCheckColumns, selects}, kPositions{verify::kPositionColumns},
    kPolicies{verify::kPolicyColumns, evicts};
// Models that read.
inline constexpr ColumnGroup kChunked{results::kArmColumns, reads_in_chunks}, kLosses{measure::kLossColumns},
    kDivergences{measure::kDivergenceColumns}, kChunks{measure::kChunkColumns, reads_in_chunks},
    kModelRuns{measure::kModelRunColumns}, kPeaks{measure::kPeakColumns};

}  // namespace kv::experiments
