// Compares the times of cells that were measured side by side.
#pragma once

#include <string>

#include "harness/measure/cell.h"

namespace kv::measure {

// The ratio of the cell's times to the baseline's, and the verdict, if both were timed.
void compare_cell(Cell& cell, const Cell& baseline, const std::string& versus);

}  // namespace kv::measure
