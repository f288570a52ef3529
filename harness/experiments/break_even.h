// Steps' times as lines in the length, and the lengths from which one cache is faster than another.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/experiments/cell_text.h"
#include "harness/math/lines.h"

namespace kv::experiments {

// A cache's times over lengths, on a line that predicts each length left out.
struct CacheLine {
  const results::Row* row;  // one of its cells
  math::Line line;
  double held_out;     // the largest error of such a prediction, as a share
  double first, last;  // measured lengths, tokens
};
struct BreakEven {
  CacheLine before, after;  // `before` is the faster one up to the crossing
  math::Crossing crossing;
};
// The pairs of caches that surely cross within the lengths of both, the surest first. The cells differ in length and variant alone.
std::vector<BreakEven> crossings_of(const Cells& cells);
// Cells of steady steps in groups that differ in nothing else that takes time.
std::vector<Cells> steady_groups(std::span<const results::Row* const> cells);

// "Break-even: paged/q4_0 is faster than contiguous/f16 from about 7,010 tokens on (6,200–8,100) …" and what each cache's step costs
// beside; empty without lines that cross at a measured length.
std::string break_even(std::span<const results::Row* const> cells);

}  // namespace kv::experiments
