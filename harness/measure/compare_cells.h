// Compares the times of cells that were measured side by side.
#pragma once

#include <span>
#include <string>

#include "harness/measure/cell.h"

namespace kv::measure {

struct Comparison {
  Cell* cell;
  const Cell* baseline;  // may be the cell itself
  std::string versus;    // the baseline's name
};

// Sets the ratios of times and their verdicts for one sweep point, if both sides were timed. The intervals are wide
// enough that all verdicts are right together with a probability of 95 % (Holm's method); the A/A test is not counted
// among them.
void compare_cells(std::span<const Comparison> comparisons);

}  // namespace kv::measure
