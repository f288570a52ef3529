// The tables below a summary's answers.
#pragma once

#include <string>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// A row a cell of one sweep point; below it, a row of each whose placement has several tiers.
std::string sweep_point_table(const Cells& cells, size_t width);

// Of one experiment, a row a variant, with what its cells range over. Of more than `most_rows`, those that are
// fastest, or without times most exact.
std::string experiment_table(const Cells& cells, size_t width, size_t most_rows);

}  // namespace kv::cli
