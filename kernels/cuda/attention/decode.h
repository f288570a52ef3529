// Attention at the speed of memory: a few queries of one kv head, one stretch of rows, on tensor cores.
//
// The warps of a block take tiles of rows in turn. Each has a ring of tiles of its own, filled by
// asynchronous copies some tiles ahead, so that no warp waits for another until the end. Rows stay encoded
// until they reach registers, and become operands without leaving the lane that read them: words.h chooses
// which elements meet in a word, and operand.h which elements of the queries belong to a lane's words of
// K, and which elements of the output its words of V are.
//
// Tensor cores multiply 16-bit numbers. Codes are such, exactly; queries and weights are not, so each is the
// sum of two of them, its upper and its lower part (operand.h). The 16 rows of an operand are then 8 queries,
// twice: a decode step, which seldom has more, would leave those rows empty. So nothing is lost to 16 bits.
//
// After FlashDecoding (Dao et al. 2023) and FlashInfer (Ye et al. 2025, arXiv:2501.01005).
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/decode_lane.h"

namespace kv::cuda {

// A ring of tiles, lanes that take them, and what becomes of their results.
template <class K, class V, int kHeadDim, int kQueries, int kStages = TileShape<K, V, kHeadDim>::kStages>
struct DecodeBlock {
  using Shape = TileShape<K, V, kHeadDim>;
  using Lane = std::conditional_t<std::is_same_v<K, F32>, FloatLane<kHeadDim, kQueries>,
                                  DecodeLane<K, V, kHeadDim, kQueries>>;
  using Results = typename Lane::Results;
  static constexpr int kWarpBytes = kStages * Shape::kBytes;
  static constexpr int kRingBytes = kDecodeWarps * kWarpBytes;
  // The rings' bytes are the results' in the end; behind them a flag.
  static constexpr int kFlagAt = kRingBytes > Results::kBytes ? kRingBytes : (Results::kBytes + 15) / 16 * 16;
  static constexpr int kQueriesAt = kFlagAt + 16;
  // KIVI's raw rows come in the launch of its groups. An item has a tile or two of them for a warp, so that a ring of one
  // is enough, and shared memory stays what groups need.
  static constexpr bool kTakesTail = K::kScaling == Scaling::kChannel;
  using Tail = DecodeBlock<F16, F16, kHeadDim, kQueries, 1>;
  static constexpr int shared_bytes() {
    constexpr int kOwn = kQueriesAt + Lane::kQueryBytes;
    if constexpr (kTakesTail) return kOwn > Tail::shared_bytes() ? kOwn : Tail::shared_bytes();
    return kOwn;
  }

  KV_DEVICE static void run(const DecodeParams& params, const Layout& layout, const WorkItem& item) {
    const BlockTask task = block_task(params, item, kQueries);
    if (task.queries <= 0) return;  // other problems have more
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
    lane.start(task, simt::shared_memory() + kQueriesAt);  // while the first rows are on their way
    // Bytes of the ring: the tile that is there, and the one before, whose place is free.
    for (int at = 0, free = kAhead * Shape::kBytes; first_row < task.end; first_row += kStep) {
      fetch(free, first_row + kAhead * kStep);
      simt::wait_copies<kAhead>();
      simt::sync_warp();  // lanes read what others copied
      lane.add_tile(ring.ring + at, first_row, task);
      simt::sync_warp();  // and the next copies overwrite it
      free = at;
      at = at + Shape::kBytes == kWarpBytes ? 0 : at + Shape::kBytes;
    }
    simt::sync_block();  // from here on the rings' bytes are the results'
    const Results results{reinterpret_cast<float*>(simt::shared_memory())};
    lane.put(results);
    simt::sync_block();
    const MergeParams& merge = params.merge;
    results.merge(merge.partials, partial_of(task.problem, merge.group, item.split, task.first_query),
                  task.queries);
    if (!params.counters) return;
    unsigned* counter = params.counters + item.problem * simt::blocks_y() + simt::block_y();
    if (!arrives_last(counter, task.problem.splits, simt::shared_memory() + kFlagAt)) return;
    merge_queries(merge, item.problem, task.first_query, task.queries);
  }
};

// Grid: [items, ceil(group * most tokens / kQueries)]; kDecodeWarps warps. A per-channel K needs groups that
// are a multiple of 32 rows.
template <class Block>
KV_KERNEL KV_LAUNCH_BOUNDS(kDecodeWarps* simt::kWarp, Block::Lane::kBlocksOfSm) decode(DecodeParams params) {
  const WorkItem item = params.items[simt::block_x()];
  if constexpr (Block::kTakesTail) {
    if (item.of_tail) return Block::Tail::run(params, params.tail, item);
  }
  Block::run(params, params.layout, item);
}

}  // namespace kv::cuda
