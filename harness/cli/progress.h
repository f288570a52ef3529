// A run's progress on the terminal.
#pragma once

#include <string>

namespace kv::cli {

// A bar with the remaining time on a terminal. Elsewhere plain lines: one a sweep point, and one every half minute in
// a long point.
class Progress {
 public:
  explicit Progress(bool quiet = false);
  // May be called at any rate.
  void update(int done, int total, const std::string& what, double weight_done, double weight_total);
  // Prints a permanent line.
  void note(const std::string& line);
  void clear();

 private:
  bool terminal_, quiet_;
  double started_, shown_ = 0.0;  // seconds; shown_: last drawing of a line or the bar
  int point_ = -1;                // its sweep point
  double weight_at_start_ = -1.0;
  bool bar_shown_ = false;
};

}  // namespace kv::cli
