// Bytes held and requests served over a replay's time, in few points: means over bins of equal length, which double
// whenever there would be too many.
#pragma once

#include <cstddef>
#include <vector>

namespace kv::planner {

// One step, or the means of a bin.
struct Moment {
  double running = 0.0, waiting = 0.0;
  double payload_bytes = 0.0, slack_bytes = 0.0, other_bytes = 0.0;  // by RowAllocator's count
  double cached_bytes = 0.0;                                         // prefixes that no sequence uses
};

class Timeline {
 public:
  static constexpr size_t kMostBins = 512;

  // A moment that lasts from `begin_s` on; not before the one before it ended. Nothing lies between two of them.
  void add(double begin_s, double seconds, const Moment& moment);
  double bin_s() const { return bin_s_; }
  // Means, from 0 to the end of the last moment.
  std::vector<Moment> bins() const;
  // Over the time of all moments, what lies between them left out.
  Moment mean_of_steps() const;

 private:
  double bin_s_ = 1e-3, end_s_ = 0.0, lasted_s_ = 0.0;
  Moment all_;                // times seconds
  std::vector<Moment> sums_;  // times seconds
};

}  // namespace kv::planner
