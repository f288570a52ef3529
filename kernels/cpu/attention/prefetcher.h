// Software prefetch of rows: without it, the times of reading and of computing add up.
//
// Prefetches run a fixed distance before the work. They are spread evenly over it, since a processor drops
// prefetches that come faster than it can pass them on, and they go in the order of addresses, since the hardware
// prefetcher, which does most of it, follows streams. Private to kernels/cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kv::cpu {

class Prefetcher {
 public:
  // Consecutive cache lines.
  struct Range {
    const std::byte* at;
    int lines;
  };

  // Appends the next ranges: all rows of some tiles. All earlier ranges but those of the last call must be
  // finished.
  void enqueue(std::span<const Range> ranges) {
    const bool idle = next_ == last_;
    queue_[last_++ % 2] = ranges;
    if (idle) start_ranges();
  }
  // Called once, before the work starts. Prefetches run kDistance + extra_lines ahead, for work that does not
  // follow the order of the ranges.
  void start(int64_t extra_lines) { unissued_ = kDistance + extra_lines; }
  // Begins a side of a tile with this many lines.
  void begin_side(int64_t lines) { unissued_ += lines; }
  // Begins a part of a side, which will call step() `steps` times. The first part issues all of the side's
  // prefetches.
  void begin_part(int64_t steps) {
    per_step_ = static_cast<int>((unissued_ + steps - 1) / steps);
    unissued_ = 0;
  }
  // always_inline: GCC treats a function that only prefetches as one without effect, and drops its calls.
  [[gnu::always_inline]] void step() {
    for (int i = 0; i < per_step_ && left_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (--left_ == 0) next_range();
    }
  }

 private:
  static constexpr int64_t kDistance = 192;  // lines

  void next_range() {
    const std::span<const Range> ranges = queue_[next_ % 2];
    if (++range_ < ranges.size()) {
      start_range(ranges[range_]);
    } else if (++next_ < last_) {
      start_ranges();
    }
  }
  void start_ranges() {
    range_ = 0;
    start_range(queue_[next_ % 2][0]);
  }
  void start_range(const Range& range) {
    at_ = range.at;
    left_ = range.lines;
  }

  std::span<const Range> queue_[2];
  int64_t last_ = 0, next_ = 0;  // enqueued and prefetched so far
  int64_t unissued_ = 0;         // lines that are due and that no part prefetches yet
  size_t range_ = 0;
  int per_step_ = 0;
  int left_ = 0;  // lines of the range; 0 where all that is known is prefetched
  const std::byte* at_ = nullptr;
};

}  // namespace kv::cpu
