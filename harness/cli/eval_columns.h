// The columns of `kvlab eval`, which measures a file's tensors without a config: those of cells.csv and heads.csv.
#pragma once

#include "harness/experiments/written_columns.h"

namespace kv::cli {

inline constexpr auto kEvalGroups =
    experiments::joined(experiments::kOfCells, experiments::kOfKept, experiments::kOfOutputs,
                        std::array{experiments::ColumnGroup{verify::kPositionColumns},
                                   experiments::ColumnGroup{measure::kContextColumns},
                                   experiments::ColumnGroup{results::kVerdictColumns}});

// A row a query head of a layer, with the metrics of outputs.
inline constexpr results::IntegerColumn kLayer{"layer", "", "layer of the dump, from 0"};
inline constexpr results::IntegerColumn kQHead{"q_head", "", "query head of the layer, from 0"};
inline const results::Table kHeads{"heads.csv", [] {
                                     results::ColumnList columns{&results::kCell,  &results::kVariant,
                                                                 &results::kBatch, &results::kSeqLen,
                                                                 &kLayer,          &kQHead};
                                     for (const verify::Metric* metric : verify::kMetrics) {
                                       if (metric->of == verify::Metric::Of::kOutputs)
                                         columns.push_back(&metric->column);
                                     }
                                     return columns;
                                   }()};

}  // namespace kv::cli
