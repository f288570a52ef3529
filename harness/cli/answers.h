// The answer of a run, before its tables: which variant is fastest, smallest and most exact.
#pragma once

#include <string>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// A line each for the fastest, the smallest and the most exact variant, at the longest length of each experiment.
// Of several sweep points there, as many as fit into `most_lines`; of each experiment at least one.
std::string answers(const Cells& cells, size_t width, size_t most_lines);

}  // namespace kv::cli
