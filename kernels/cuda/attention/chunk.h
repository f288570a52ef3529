// Attention of a chunk of tokens on tensor cores: many queries of one KV head over one range of rows.
//
// Each warp of a block has 8 or 16 queries of its own, and all warps read the same tiles, so that rows come from memory once for
// four warps' queries. Shared memory has two stages of tiles: each warp fetches a tile of the next stage, then adds every tile of
// this one to its lanes' results (decode_lane.h). Nothing is merged across warps, since each has seen all rows.
#pragma once

#include "kernels/cuda/attention/decode_lane.h"

namespace kv::cuda {

// The most that a block can have where an SM has 100 KiB: RTX 3090, 4090 and 5080.
inline constexpr int kLeastSharedBytes = 99 << 10;

// Tiles of a stage: one a warp, or half as many until they and `other_bytes` fit.
constexpr int chunk_tiles(int tile_bytes, int other_bytes) {
  int tiles = kDecodeWarps;
  while (tiles > 1 && tiles * tile_bytes + other_bytes > kLeastSharedBytes) tiles /= 2;
  return tiles;
}

// Has the members that decode() in decode.h needs.
template <class K, class V, int kHeadDim, int kWarpQueries>
struct ChunkBlock {
  using Shape = TileShape<K, V, kHeadDim>;
  using Lane = DecodeLane<K, V, kHeadDim, kWarpQueries, WarpsShare::kTiles>;
  // Fewer queries than a block's would leave warps idle.
  static constexpr int kBlockQueries = kDecodeWarps * kWarpQueries, kLeastQueries = kBlockQueries;
  static constexpr int kStages = 2;
  // A warp adds all of an item's rows, where one of decode.h's has a part of them.
  static constexpr int kItemRows = kMostItemRows / kDecodeWarps;
  using Results = BlockResults<kHeadDim, 1, kBlockQueries>;
  // KIVI's raw rows have a launch of their own, which is little beside a chunk's.
  static constexpr bool kTakesTail = false;

  static constexpr int kTiles = chunk_tiles(kStages * Shape::kBytes, 16 + kDecodeWarps * Lane::kQueryBytes);
  static constexpr int kStageBytes = kTiles * Shape::kBytes, kRingBytes = kStages * kStageBytes;
  // Results reuse the tiles' bytes; a flag and the warps' queries follow.
  static constexpr int kFlagAt = kRingBytes > Results::kBytes ? kRingBytes : (Results::kBytes + 15) / 16 * 16;
  static constexpr int kQueriesAt = kFlagAt + 16;
  static constexpr int shared_bytes() { return kQueriesAt + kDecodeWarps * Lane::kQueryBytes; }
  static constexpr int blocks_of_sm() { return blocks_that_fit(shared_bytes(), Lane::kBlocksOfSm); }

  KV_DEVICE static void run(const DecodeParams& params, const Layout& layout, const WorkItem& item) {
    const BlockTask task = block_task(params, item, kBlockQueries);
    if (task.queries <= 0) return;  // only other problems have so many queries
    std::byte* const shared = simt::shared_memory();
    const int warp = simt::same_in_warp(simt::warp());
    BlockTask own = task_of(params, item, task.first_query + warp * kWarpQueries, kWarpQueries);
    own.end = task.end;  // one register for both
    const TileRing<K, V, kHeadDim> ring{shared + warp * Shape::kBytes, layout, task.pages,
                                        task.end > 0 ? task.end - 1 : 0};
    constexpr int kStep = kTiles * Shape::kRows;
    const int apart = warp * Shape::kRows;  // of this warp's tile from its stage's first
    const auto fetch = [&](int at, int row) {
      if (warp < kTiles && row < task.end) ring.issue(at, ring.find(row));
      simt::commit_copies();
      ring.find(row + kStep);  // its page comes meanwhile; registers are too few to keep the place
    };
    fetch(0, item.begin + apart);
    Lane lane;
    lane.start(own, shared + kQueriesAt + warp * Lane::kQueryBytes);  // while the first rows arrive
    for (int at = 0, row = item.begin; row < task.end; row += kStep, at = kStageBytes - at) {
      simt::wait_copies<0>();
      if (K::kScaling == Scaling::kChannel && warp < kTiles && row + apart + Shape::kRows > task.end) {
        simt::sync_warp();  // lanes clear bytes that others copied
        Lane::clear_scales(ring.ring + at, task.end - row - apart);
      }
      simt::sync_block();  // the stage is there, and no warp reads the one before
      fetch(kStageBytes - at, row + kStep + apart);
      const int stop = simt::smaller(row + kStep, task.end);
      std::byte* tile = shared + at;
      KV_ROLLED
      for (int first = row; first < stop; first += Shape::kRows, tile += Shape::kBytes)
        lane.add_tile(tile, first, own);
    }
    simt::sync_block();  // results overwrite the tiles from here on
    lane.put({reinterpret_cast<float*>(shared)});
    simt::sync_block();
    // The item and the task are read anew: the loop has no registers left for them.
    const WorkItem& again = params.items[simt::block_x()];
    write_results(params, again, block_task(params, again, kBlockQueries),
                  Results{reinterpret_cast<float*>(shared)}, shared + kFlagAt);
  }
};

}  // namespace kv::cuda
