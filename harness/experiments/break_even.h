// Steps' times as lines in the length, and the lengths from which one cache is faster than another.
#pragma once

#include <span>
#include <string>

#include "harness/results/row.h"

namespace kv::experiments {

// "Break-even: paged/q4_0 is faster than contiguous/f16 from about 7,010 tokens on (6,200–8,100) …" and what each cache's step costs
// beside; empty without lines that cross at a measured length. `cells` differ in length and variant, and in nothing else that takes
// time, or in groups of such cells.
std::string break_even(std::span<const results::Row* const> cells);

}  // namespace kv::experiments
