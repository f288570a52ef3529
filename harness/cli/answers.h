// The answer of a run, before its tables: the fastest, the smallest and the most exact variant.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/cell_text.h"

namespace kv::cli {

// The best variant by one question.
struct Answer {
  std::string question;  // "fastest", "smallest", "most exact"; an error limit that some cells exceed follows
  const results::Row* best;  // null where the baseline's times allow no answer, as `text` says
  int as_good;               // others that are tied with it
  experiments::Measured
      value;  // time as a share of the baseline's; bytes a token, or in prefill of workspace; error
  experiments::Measured error;
  std::string text;  // the value for the terminal
};
// Of the cells of one sweep point; empty if nothing was measured.
std::vector<Answer> answers_at(const Cells& cells);

// One line each for the fastest, the smallest and the most exact variant, at the longest length of each experiment.
// Prints as many sweep points as fit into `most_lines`, at least one an experiment.
std::string answers(const Cells& cells, size_t width, size_t most_lines);

// A line per experiment: how many caches its error limit keeps from being fastest or smallest, with the first.
std::string beyond_limit_lines(const Cells& cells);

}  // namespace kv::cli
