// Timed reads, the basis of measured bandwidths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "harness/math/stats.h"
#include "harness/measure/timing.h"
#include "kernels/cpu/ceilings/stream.h"

namespace kv::measure {

// Times reads and keeps the rate of each.
class TimedReads {
 public:
  // Calls read(), which returns a sum of the bytes read. Returns seconds.
  template <class Read>
  double run(int64_t bytes, Read read) {
    return timed(gbps_[0], bytes, read);
  }
  // Calls read(order) with the next of the orders in turn: the fastest is the ceiling. Returns seconds.
  template <class Read>
  double run_in_turn(int64_t bytes, Read read) {
    const size_t order = turn_++ % std::size(cpu::kReadOrders);
    return timed(gbps_[order], bytes, [&] { return read(cpu::kReadOrders[order]); });
  }
  // Reads once before a measurement: fills the caches and wakes the threads.
  template <class Read>
  void warm_up(Read read) {
    sum_ = sum_ + read();
  }
  // Of the order with the highest median.
  double gbps() const {
    double best = 0.0;
    for (const std::vector<double>& rates : gbps_) {
      if (!rates.empty()) best = std::max(best, math::median(rates));
    }
    return best;
  }

 private:
  template <class Read>
  double timed(std::vector<double>& rates, int64_t bytes, Read read) {
    Stopwatch watch;
    const uint64_t sum = read();
    const double seconds = watch.lap();
    sum_ = sum_ + sum;
    rates.push_back(static_cast<double>(bytes) / seconds * 1e-9);
    return seconds;
  }

  volatile uint64_t sum_ = 0;  // volatile, so that the compiler keeps the reads
  size_t turn_ = 0;
  std::vector<double> gbps_[std::size(cpu::kReadOrders)];
};

}  // namespace kv::measure
