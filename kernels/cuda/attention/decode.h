// Attention at the speed of memory: a few queries of one kv head, one stretch of rows, on tensor cores.
//
// The warps of a block take tiles of rows in turn. Each has a ring of tiles of its own, filled by
// asynchronous copies some tiles ahead, so that no warp waits for another until the end. Rows stay encoded
// until they reach registers, and become operands without leaving the lane that read them: words.h chooses
// which elements meet in a word, and mma_fragment.h which elements of the queries belong to a lane's words of
// K, and which elements of the output its words of V are.
//
// Tensor cores multiply 16-bit numbers. Codes are such, exactly; queries and weights are not, so each is the
// sum of two of them, its upper and its lower part (operand.h). The 16 rows of an operand are then 8 queries,
// twice: a decode step, which seldom has more, would leave those rows empty. So nothing is lost to 16 bits.
//
// After FlashDecoding (Dao et al. 2023) and FlashInfer (Ye et al. 2025, arXiv:2501.01005).
#pragma once

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/decode_lane.h"

namespace kv::cuda {

// ---- the kernels: a ring, lanes that take its tiles, and what becomes of their results ----

template <class K, class V, int kHeadDim, class Lane>
struct DecodeBlock {
  using Shape = TileShape<K, V, kHeadDim>;
  using Results = typename Lane::Results;
  static constexpr int kWarpBytes = Shape::kStages * Shape::kBytes;
  static constexpr int kRingBytes = kDecodeWarps * kWarpBytes;
  // The rings' bytes are the results' in the end; behind them a flag.
  static constexpr int kFlagAt = kRingBytes > Results::kBytes ? kRingBytes : (Results::kBytes + 15) / 16 * 16;
  static constexpr int kQueriesAt = kFlagAt + 16;
  static constexpr int kSharedBytes = kQueriesAt + Lane::kQueryBytes;

  KV_DEVICE static void run(const DecodeParams& params, int most_queries) {
    const BlockTask task = block_task(params, most_queries);
    if (task.queries <= 0) return;  // other problems have more
    const TileRing<K, V, kHeadDim> ring{simt::shared_memory() + simt::warp() * kWarpBytes, params.layout,
                                        task.pages, task.end};
    const auto first_row = [&](int turn) {
      return task.item.begin + (turn * kDecodeWarps + simt::warp()) * Shape::kRows;
    };
    const auto fetch = [&](int turn) {
      if (first_row(turn) < task.end) ring.issue(turn % Shape::kStages, first_row(turn));
      simt::commit_copies();
    };
    for (int turn = 0; turn < Shape::kStages - 1; ++turn) fetch(turn);
    Lane lane;
    lane.start(task, simt::shared_memory() + kQueriesAt);  // while the first rows are on their way
    for (int turn = 0; first_row(turn) < task.end; ++turn) {
      fetch(turn + Shape::kStages - 1);
      simt::wait_copies<Shape::kStages - 1>();
      simt::sync_warp();  // lanes read what others copied
      lane.add_tile(ring.tile(turn % Shape::kStages), first_row(turn), task);
      simt::sync_warp();  // and the next copies overwrite it
    }
    simt::sync_block();  // from here on the rings' bytes are the results'
    const Results results{reinterpret_cast<float*>(simt::shared_memory())};
    lane.put(results);
    simt::sync_block();
    finish(params, task, results, simt::shared_memory() + kFlagAt);
  }
};

// Blocks of an SM: as many as registers allow without spilling; of 16-bit rows no more than fit beside each
// other in shared memory.
template <class K>
constexpr int decode_blocks(int head_dim, int queries) {
  const int numbers = head_dim * queries * K::Number::kQueryParts;
  return numbers <= (K::kScaling == Scaling::kBlock || K::kBits == 16 ? 1024 : 2048) ? 3 : 2;
}

// Grid: [items, ceil(group * most tokens / kQueries)]; kDecodeWarps warps. A per-channel K needs groups that
// are a multiple of 32 rows.
template <class K, class V, int kHeadDim, int kQueries>
KV_KERNEL KV_LAUNCH_BOUNDS(kDecodeWarps* simt::kWarp, decode_blocks<K>(kHeadDim, kQueries))
    decode(DecodeParams params) {
  DecodeBlock<K, V, kHeadDim, DecodeLane<K, V, kHeadDim, kQueries>>::run(params, kQueries);
}

template <int kHeadDim, int kQueries>
KV_KERNEL KV_LAUNCH_BOUNDS(kDecodeWarps* simt::kWarp, 3) decode_f32(DecodeParams params) {
  DecodeBlock<F32, F32, kHeadDim, FloatLane<kHeadDim, kQueries>>::run(params, kQueries);
}

}  // namespace kv::cuda
