// A tile: up to kTileRows consecutive logical rows, found in the spans they lie in. Private to kernels/cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention_task.h"
#include "kernels/span.h"

namespace kv {

// From one query's scores to the next one's: blocks of keys may write past the last row of a tile.
inline constexpr int kScoreStride = kTileRows + 16;

// Where one side's rows lie. A row's codes are consecutive in every format.
struct TileSide {
  const std::byte* row[kTileRows];   // codes
  const std::byte* meta[kTileRows];  // scales and zero points of the row's unit; not set where there are none
};

// Rows of a tile whose K are stored alike, and whose V are.
struct Run {
  int first, count;
  Encoding k, v;
};

struct Tile {
  int rows = 0, runs = 0, pieces = 0;
  TileSide k, v;
  Run run[kTileRows];
  int piece_end[kTileRows];  // the tile's rows up to here lie in this span and those before
};

// Rows [first, first + count) of a tile side -> out [count, head_dim].
void decode_tile_rows(const TileSide& side, const Encoding& encoding, int head_dim, int first, int count,
                      float* out);

// Asks memory for rows before their turn: without it, the time of reading and the time of computing add up.
//
// Requests run a fixed distance ahead of the work. They are spread evenly over it, since a processor drops
// requests that come faster than it can pass them on, and they go in the order of addresses, since the
// hardware's own prefetcher, which does most of it, follows streams.
class Ahead {
 public:
  // Lines that follow each other in memory.
  struct Stretch {
    const std::byte* at;
    int lines;
  };

  // What is to be asked for next: all rows of some tiles, together. What was added last but one is done with.
  void add(std::span<const Stretch> stretches) {
    const bool idle = next_ == last_;
    part_[last_++ % 2] = stretches;
    if (idle) start_part();
  }
  // By how much more than the usual distance requests are to lead, where they are not in the order of work.
  // Once, before the work starts.
  void lead(int64_t lines) { owed_ = kDistance + lines; }
  // Starts work on a side of a tile, with so many lines.
  void begin_side(int64_t lines) { owed_ += lines; }
  // Starts work on a part of it, which will call step() `steps` times. The first one makes all the side's
  // requests.
  void begin_part(int64_t steps) {
    per_step_ = static_cast<int>((owed_ + steps - 1) / steps);
    owed_ = 0;
  }
  // always_inline: GCC takes a function that only prefetches for one without effect, and drops its calls.
  [[gnu::always_inline]] void step() {
    for (int i = 0; i < per_step_ && left_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (--left_ == 0) next_stretch();
    }
  }

 private:
  static constexpr int64_t kDistance = 192;  // lines

  void next_stretch() {
    const std::span<const Stretch> part = part_[next_ % 2];
    if (++stretch_ < part.size()) {
      start_stretch(part[stretch_]);
    } else if (++next_ < last_) {
      start_part();
    }
  }
  void start_part() {
    stretch_ = 0;
    start_stretch(part_[next_ % 2][0]);
  }
  void start_stretch(const Stretch& stretch) {
    at_ = stretch.at;
    left_ = stretch.lines;
  }

  std::span<const Stretch> part_[2];
  int64_t last_ = 0, next_ = 0;  // parts added and asked for
  int64_t owed_ = 0;             // requests that no part makes yet
  size_t stretch_ = 0;
  int per_step_ = 0;
  int left_ = 0;  // lines of the stretch; 0 where all that is known is asked for
  const std::byte* at_ = nullptr;
};

}  // namespace kv
