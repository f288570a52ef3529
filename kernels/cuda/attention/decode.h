// Memory-bound attention on tensor cores: a few queries of one KV head over one range of rows.
//
// The warps of a block take tiles of rows in turn. Each warp has its own ring of tiles, filled by asynchronous copies some
// tiles ahead, so that no warp waits for another until the end. Rows stay encoded until they reach registers and become
// operands in the lane that read them: words.h chooses the elements that share a word; operand.h maps a lane's words of K to
// elements of the queries and its words of V to elements of the output.
//
// Tensor cores multiply 16-bit numbers. Codes fit exactly. Queries and weights do not: each is the sum of two 16-bit numbers,
// its upper and its lower part (operand.h), so no precision is lost. The 16 rows of an operand hold these parts of 8 queries;
// a decode step, which seldom has more queries, would leave the rows empty.
//
// After FlashDecoding (Dao et al. 2023) and FlashInfer (Ye et al. 2025, arXiv:2501.01005).
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/decode_lane.h"

namespace kv::cuda {

// A block: rings of tiles, the lanes that read them, the merge of their results.
template <class K, class V, int kHeadDim, int kQueries, int kStages_ = TileShape<K, V, kHeadDim>::kStages>
struct DecodeBlock {
  using Shape = TileShape<K, V, kHeadDim>;
  using Lane = std::conditional_t<std::is_same_v<K, F32>, FloatLane<kHeadDim, kQueries>,
                                  DecodeLane<K, V, kHeadDim, kQueries>>;
  using Results = typename Lane::Results;
  static constexpr int kBlockQueries = kQueries, kLeastQueries = 1, kStages = kStages_;
  static constexpr int kItemRows = kMostItemRows;
  static constexpr int kWarpBytes = kStages * Shape::kBytes;
  static constexpr int kRingBytes = kDecodeWarps * kWarpBytes;
  // Results reuse the rings' bytes; a flag follows them.
  static constexpr int kFlagAt = kRingBytes > Results::kBytes ? kRingBytes : (Results::kBytes + 15) / 16 * 16;
  static constexpr int kQueriesAt = kFlagAt + 16;
  // One launch has KIVI's groups and its raw rows. A warp has a tile or two of raw rows, so a ring of one tile is enough and
  // the groups decide the size of shared memory.
  static constexpr bool kTakesTail = K::kScaling == Scaling::kChannel;
  using Tail = DecodeBlock<F16, F16, kHeadDim, kQueries, 1>;
  static constexpr int shared_bytes() {
    constexpr int kOwn = kQueriesAt + Lane::kQueryBytes;
    if constexpr (kTakesTail) return kOwn > Tail::shared_bytes() ? kOwn : Tail::shared_bytes();
    return kOwn;
  }
  static constexpr int blocks_of_sm() { return blocks_that_fit(shared_bytes(), Lane::kBlocksOfSm); }

  KV_DEVICE static void run(const DecodeParams& params, const Layout& layout, const WorkItem& item) {
    const BlockTask task = block_task(params, item, kQueries);
    if (task.queries <= 0) return;  // only other problems have so many queries
    const int warp = simt::same_in_warp(simt::warp());
    const TileRing<K, V, kHeadDim> ring{simt::shared_memory() + warp * kWarpBytes, layout, task.pages,
                                        task.end > 0 ? task.end - 1 : 0};
    int first_row = item.begin + warp * Shape::kRows;
    constexpr int kStep = kDecodeWarps * Shape::kRows, kAhead = kStages - 1;
    auto next = ring.find(first_row);
    const auto fetch = [&](int at, int row) {
      if (row < task.end) ring.issue(at, next);
      simt::commit_copies();
      next = ring.find(row + kStep);
    };
    for (int i = 0; i < kAhead; ++i) fetch(i * Shape::kBytes, first_row + i * kStep);
    Lane lane;
    lane.start(task, simt::shared_memory() + kQueriesAt);  // while the first rows arrive
    // Offsets into the ring: the tile that has arrived, and the previous one, whose bytes are free.
    for (int at = 0, free = kAhead * Shape::kBytes; first_row < task.end; first_row += kStep) {
      fetch(free, first_row + kAhead * kStep);
      simt::wait_copies<kAhead>();
      simt::sync_warp();  // lanes read bytes that others copied
      lane.add_tile(ring.ring + at, first_row, task);
      simt::sync_warp();  // the next copies overwrite the tile
      free = at;
      at = at + Shape::kBytes == kWarpBytes ? 0 : at + Shape::kBytes;
    }
    simt::sync_block();  // results overwrite the rings from here on
    const Results results{reinterpret_cast<float*>(simt::shared_memory())};
    lane.put(results);
    simt::sync_block();
    // q8_0's loop at 256 dimensions has no registers left for the task, which is read anew.
    constexpr bool kAnew = K::kScaling == Scaling::kBlock;
    write_results(params, item, kAnew ? block_task(params, item, kQueries) : task, results,
                  simt::shared_memory() + kFlagAt);
  }
};

// Block: DecodeBlock, or chunk.h's ChunkBlock. Grid: [items, ceil(group * most tokens / kBlockQueries)]; kDecodeWarps warps.
// Groups of a per-channel K are multiples of 32 rows.
template <class Block>
KV_KERNEL KV_LAUNCH_BOUNDS(kDecodeWarps* simt::kWarp, Block::blocks_of_sm()) decode(DecodeParams params) {
  const WorkItem item = params.items[simt::block_x()];
  if constexpr (Block::kTakesTail) {
    if (item.of_tail) return Block::Tail::run(params, params.tail, item);
  }
  Block::run(params, params.layout, item);
}

}  // namespace kv::cuda
