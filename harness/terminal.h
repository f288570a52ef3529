// What a run prints: progress, and the table at its end.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/results.h"

namespace kv {

// A bar with the time left on a terminal, plain lines elsewhere: one a block, and one every half a minute in
// a long block.
class Progress {
 public:
  explicit Progress(bool quiet = false);
  // May be called as often as there is something to say.
  void update(int done, int total, const std::string& what, double weight_done, double weight_total);
  // A line that stays.
  void note(const std::string& line);
  void clear();

 private:
  bool terminal_, quiet_;
  double started_, shown_ = 0.0;  // seconds; shown_: when a line or the bar was last drawn
  int block_ = -1;                // that it was drawn for
  double weight_at_start_ = -1.0;
  bool bar_shown_ = false;
};

// Columns as wide as they need, the first one left-aligned; the first row is the head.
std::string render_table(const std::vector<std::vector<std::string>>& rows);

// One table an experiment, workload, batch and length.
std::string summary_table(std::span<const Row> cells);

}  // namespace kv
