// Reads that are timed: what bandwidths are measured with.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/math/stats.h"
#include "harness/measure/timing.h"

namespace kv::measure {

// Times reads, and keeps how fast each was.
class TimedReads {
 public:
  // read() returns a sum of what it reads. In seconds.
  template <class Read>
  double run(int64_t bytes, Read read) {
    Stopwatch watch;
    const uint64_t sum = read();
    const double seconds = watch.lap();
    sum_ = sum_ + sum;
    gbps_.push_back(static_cast<double>(bytes) / seconds * 1e-9);
    return seconds;
  }
  // The same before a measurement: into the caches, with the threads awake.
  template <class Read>
  void warm_up(Read read) {
    sum_ = sum_ + read();
  }
  double gbps() const { return math::median(gbps_); }

 private:
  volatile uint64_t sum_ = 0;  // volatile, so that the reads cannot be left out
  std::vector<double> gbps_;
};

}  // namespace kv::measure
