// Tiles that are worked on one after another and prefetched as one. Private to kernels/cpu.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/prefetcher.h"
#include "kernels/cpu/attention/tile.h"

namespace kv::cpu {

// A tile, and whose it is.
struct LocatedTile : Tile {
  const AttentionTask* task;
  size_t in_batch;  // index of the batched task
  int64_t row;      // the first
};

// Tiles of batched tasks, prefetched piece by piece, each piece of all of them, since there their rows are neighbours
// in memory. More than two tiles at once were not faster.
struct TileBatch {
  static constexpr int kTiles = 2;

  LocatedTile tile[kTiles];
  int tiles = 0;
  Prefetcher::Range range[kTiles * 2 * kTileRows];
  size_t ranges = 0;
  int64_t k_lines = 0, v_lines = 0;  // summed over tiles

  // Lists the ranges to prefetch: K, then V.
  void list_ranges(int64_t k_bytes, int64_t v_bytes) {
    ranges = 0;
    lines_ = 0;
    list_side(&Tile::k, k_bytes);
    k_lines = lines_;
    list_side(&Tile::v, v_bytes);
    v_lines = lines_ - k_lines;
  }

 private:
  void list_side(TileSide Tile::*side, int64_t row_bytes) {
    for (int piece = 0, first = 0; first < tile[0].rows; first = tile[0].piece_end[piece++]) {
      for (int i = 0; i < tiles; ++i)
        list_rows((tile[i].*side).row + first, tile[0].piece_end[piece] - first, row_bytes);
    }
  }
  // Contiguous rows are one range, as far as the last one tells: a wrong guess prefetches other lines and does no
  // harm.
  void list_rows(const std::byte* const* row, int rows, int64_t bytes) {
    if (row[rows - 1] == row[0] + (rows - 1) * bytes) return list(row[0], rows * bytes);
    for (int i = 0; i < rows; ++i) list(row[i], bytes);
  }
  // Behind what was listed last, or somewhere else.
  void list(const std::byte* at, int64_t bytes) {
    const int lines = static_cast<int>((bytes + 63) / 64);
    const bool follows = ranges > 0 && at == end_;
    if (!follows) range[ranges++] = {at, 0};
    range[ranges - 1].lines += lines;
    lines_ += lines;
    end_ = at + bytes;
  }

  const std::byte* end_ = nullptr;  // end of the range listed last
  int64_t lines_ = 0;               // so far
};

}  // namespace kv::cpu
