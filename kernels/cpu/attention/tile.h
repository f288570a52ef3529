// A tile: up to kTileRows consecutive logical rows, found in the spans they lie in. Private to kernels/cpu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/span.h"

namespace kv::cpu {

// From one query's scores to the next one's: blocks of keys may write past the last row of a tile.
inline constexpr int kScoreStride = kTileRows + 16;

// The addresses of one side's rows. A row's codes are consecutive in every format.
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

}  // namespace kv::cpu
