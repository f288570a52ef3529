// A summary's parts: the fastest, the smallest and the most exact variant, and the tables below them.
#pragma once

#include <string>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// One line each for the fastest, the smallest and the most exact variant, at the longest length of each experiment.
// Prints as many sweep points as fit into `most_lines`, at least one an experiment.
std::string answers(const Cells& cells, size_t width, size_t most_lines);

// A line per experiment: how many caches its error limit keeps from being fastest or smallest, with the first.
std::string beyond_limit_lines(const Cells& cells);

// One row a cell of a sweep point; below it, one row a cell whose placement has several tiers.
std::string sweep_point_table(const Cells& cells, size_t width);

// One row a variant of an experiment, with the ranges of its cells. Keeps `most_rows` rows: the fastest, or without
// times the most exact.
std::string experiment_table(const Cells& cells, size_t width, size_t most_rows);

}  // namespace kv::cli
