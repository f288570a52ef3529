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
  const std::byte* meta[kTileRows];  // scales and zero points of the row's unit; null where there are none
};

// Rows of a tile whose K are stored alike, and whose V are.
struct Run {
  int first, count;
  Encoding k, v;
};

struct Tile {
  int rows = 0, runs = 0;
  TileSide k, v;
  Run run[kTileRows];
};

// Rows [first, first + count) of a tile side -> out [count, head_dim].
void decode_tile_rows(const TileSide& side, const Encoding& encoding, int head_dim, int first, int count,
                      float* out);

// Asks memory for rows before their turn: without it, the time of reading and the time of computing add up.
//
// Requests run a fixed distance ahead of the work, through the K rows of a tile, its V rows, the next tile's
// K rows and so on. They are spread evenly over the work, since a processor drops requests that come faster
// than it can pass them on, and they go in the order of addresses, since the hardware's own prefetcher, which
// does most of it, follows streams.
class Ahead {
 public:
  // The next tile of the sequence; the one before the last is done with. `k_bytes` and `v_bytes` of a row.
  void add(const Tile& tile, int64_t k_bytes, int64_t v_bytes) {
    const bool idle = next_ == last_;
    part_[last_ % 4] = part_of(tile.k.row, tile.rows, k_bytes);
    part_[(last_ + 1) % 4] = part_of(tile.v.row, tile.rows, v_bytes);
    last_ += 2;
    if (idle) start_part();
  }
  // Starts work on the next part (K or V rows of a tile), which will call step() `steps` times.
  void begin_part(int64_t steps) {
    const Part& part = part_[work_ % 4];
    const int64_t owed = int64_t{part.rows} * part.lines + (work_ == 0 ? kDistance : 0);
    per_step_ = static_cast<int>((owed + steps - 1) / steps);
    ++work_;
  }
  // always_inline: GCC takes a function that only prefetches for one without effect, and drops its calls.
  [[gnu::always_inline]] void step() {
    for (int i = 0; i < per_step_ && left_ > 0; ++i) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      if (--left_ == 0) next_row();
    }
  }

 private:
  static constexpr int64_t kDistance = 192;  // lines
  struct Part {
    const std::byte* const* row = nullptr;
    int rows = 0;
    int lines = 0;  // of a row
  };
  static int lines(int64_t bytes) { return static_cast<int>((bytes + 63) / 64); }  // as caches have them
  // Rows that follow each other are asked for as a single long one: going on to the next row takes longer
  // than a request. Looking at the last row suffices, since a wrong guess asks for other lines and does no
  // harm.
  static Part part_of(const std::byte* const* row, int rows, int64_t bytes) {
    const bool follow = row[rows - 1] == row[0] + (rows - 1) * bytes;
    return follow ? Part{row, 1, lines(rows * bytes)} : Part{row, rows, lines(bytes)};
  }

  void next_row() {
    if (++row_ != rows_end_) {
      at_ = *row_;
      left_ = lines_;
    } else if (++next_ < last_) {
      start_part();
    }
  }
  void start_part() {
    const Part& part = part_[next_ % 4];
    row_ = part.row;
    rows_end_ = part.row + part.rows;
    lines_ = part.lines;
    at_ = *row_;
    left_ = lines_;
  }

  Part part_[4];
  uint64_t last_ = 0, work_ = 0, next_ = 0;  // parts added, begun, and asked for
  const std::byte* const* row_ = nullptr;    // the part's that is asked for
  const std::byte* const* rows_end_ = nullptr;
  const std::byte* at_ = nullptr;
  int per_step_ = 0, lines_ = 0, left_ = 0;  // left_: lines of the row; 0 where all that is known is asked for
};

}  // namespace kv
