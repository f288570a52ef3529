// The tables below a summary's answers.
#pragma once

#include <string>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// One row a cell of a sweep point; below it, one row a cell whose placement has several tiers.
std::string sweep_point_table(const Cells& cells, size_t width);

// One row a variant of an experiment, with the ranges of its cells. Keeps `most_rows` rows: the fastest, or without
// times the most exact.
std::string experiment_table(const Cells& cells, size_t width, size_t most_rows);

}  // namespace kv::cli
