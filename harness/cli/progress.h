// What a run prints while it runs.
#pragma once

#include <string>

namespace kv::cli {

// A bar with the time left on a terminal, plain lines elsewhere: one a sweep point, and one every half a
// minute in a long one.
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
  int point_ = -1;                // the sweep point that it was drawn for
  double weight_at_start_ = -1.0;
  bool bar_shown_ = false;
};

}  // namespace kv::cli
