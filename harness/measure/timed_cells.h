// Times cells that lie in memory side by side, and compares their times.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timing.h"

namespace kv::measure {

// Runs the tasks interleaved; cells that run out of memory meanwhile are marked. False if it was stopped.
bool time_cells(std::vector<std::unique_ptr<TimedTask>>& tasks, const std::vector<Cell*>& cells,
                int repetitions, const RunControl& control);

// The ratio of the cell's times to the baseline's, and the verdict, if both were timed.
void compare_cell(Cell& cell, const Cell& baseline, const std::string& versus);

}  // namespace kv::measure
