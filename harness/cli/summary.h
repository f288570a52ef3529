// What a run prints at its end.
#pragma once

#include <span>
#include <string>

#include "harness/results/cell_result.h"

namespace kv::cli {

inline constexpr size_t kSummaryWidth = 120;

// A table for each sweep point; where there are many, one for each experiment, a row a variant with what its
// cells range over. No line is wider than kSummaryWidth: what has no room is in the report and in cells.csv.
std::string summary(std::span<const results::CellResult> cells);

}  // namespace kv::cli
