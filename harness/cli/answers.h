// The answer of a run, before its tables: the fastest, the smallest and the most exact variant.
#pragma once

#include <string>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// One line each for the fastest, the smallest and the most exact variant, at the longest length of each experiment.
// Prints as many sweep points as fit into `most_lines`, at least one an experiment.
std::string answers(const Cells& cells, size_t width, size_t most_lines);

}  // namespace kv::cli
