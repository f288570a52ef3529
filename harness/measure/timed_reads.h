// Timed reads, the basis of measured bandwidths.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/math/stats.h"
#include "harness/measure/timing.h"

namespace kv::measure {

// Times reads and keeps the rate of each.
class TimedReads {
 public:
  // Calls read(), which returns a sum of the bytes read. Returns seconds.
  template <class Read>
  double run(int64_t bytes, Read read) {
    Stopwatch watch;
    const uint64_t sum = read();
    const double seconds = watch.lap();
    sum_ = sum_ + sum;
    gbps_.push_back(static_cast<double>(bytes) / seconds * 1e-9);
    return seconds;
  }
  // Reads once before a measurement: fills the caches and wakes the threads.
  template <class Read>
  void warm_up(Read read) {
    sum_ = sum_ + read();
  }
  double gbps() const { return math::median(gbps_); }

 private:
  volatile uint64_t sum_ = 0;  // volatile, so that the compiler keeps the reads
  std::vector<double> gbps_;
};

}  // namespace kv::measure
