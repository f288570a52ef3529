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

// Of one sweep point: the ratios of times and their verdicts, where both sides were timed. Their intervals are wide
// enough that all verdicts are right together with a probability of 95 % (Holm's method); an A/A test is for itself.
void compare_cells(std::span<const Comparison> comparisons);

}  // namespace kv::measure
