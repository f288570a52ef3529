// Eviction by scores, as in variants/retention/h2o.cc and tova.cc: attention weights accumulate per slot; once all slots are in
// use, the next token takes the slot with the smallest score outside the newest `recent` tokens, the lowest slot if scores are
// equal. The choice stays on the GPU, in the slot list that append_rows reads.
#pragma once

#include <bit>

#include "kernels/cuda/rows/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

inline constexpr int kEvictWarps = 4;

inline constexpr size_t kEvictSharedBytes = kEvictWarps * sizeof(uint64_t);

// Larger for a smaller score by is_lighter() of kernels/math.h, then for a lower slot; never 0.
KV_DEVICE uint64_t lightness(float score, int slot) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 is 0
  const uint32_t in_order = score != score ? ~0u : bits >> 31 ? ~bits : bits | 1u << 31;
  return ~(uint64_t{in_order} << 32 | static_cast<uint32_t>(slot));
}

// The slot with the smallest score among those whose tokens are not recent; -1 if there is none.
KV_DEVICE int lightest_slot(const EvictParams& p, const ScoredSlots& head) {
  uint64_t best = 0;
  for (int slot = simt::thread(); slot < p.budget; slot += simt::threads()) {
    // The coming token counts as recent.
    if (head.token[slot] > p.count - p.recent) continue;
    best = simt::larger(best, lightness(head.score[slot], slot));
  }
  best = simt::largest_of_lanes(best, simt::kWarp);
  auto* of_warp = reinterpret_cast<uint64_t*>(simt::shared_memory());  // [kEvictWarps]
  if (simt::lane() == 0) of_warp[simt::warp()] = best;
  simt::sync_block();
  for (int warp = 0; warp < kEvictWarps; ++warp) best = simt::larger(best, of_warp[warp]);
  return static_cast<int>(~static_cast<uint32_t>(best));
}

// Grid: [heads]; kEvictWarps warps, kEvictSharedBytes.
KV_KERNEL choose_slot(EvictParams p) {
  const ScoredSlots head = p.heads[simt::block_x()];
  const bool full = p.count >= p.budget;
  const int victim = full ? lightest_slot(p, head) : p.count;
  // A policy of the newest query alone drops earlier scores; all of them have been read.
  for (int slot = simt::thread(); full && p.newest_query && slot < p.budget; slot += simt::threads()) {
    head.score[slot] = 0.0f;
  }
  if (simt::thread() != 0) return;
  head.token[victim] = p.count;
  head.score[victim] = 0.0f;
  p.slot[simt::block_x()] = victim;
}

// H2O's scores (Zhang et al. 2023, arXiv:2306.14048): attention weights of each row, summed over the queries. Attention keeps raw
// scores, which become weights once the merge knows a query's whole sum. A thread has a row and adds the queries in their
// order, so every run gives the same bits.
// Grid: [ceil(most rows / threads), problems].
KV_KERNEL add_attention_weights(AttentionWeightsParams params) {
  const Problem p = params.problems[simt::block_y()];
  const int row = simt::block_x() * simt::threads() + simt::thread();
  if (!p.logits || row >= rows_of(p)) return;
  const float* log_sum = params.log_sum + int64_t{simt::block_y()} * params.most_queries;
  float sum = 0.0f;
  for (int query = 0; query < params.group * p.n; ++query) {
    if (row >= p.visible + query % p.n) continue;
    sum += simt::exp2(p.logits[int64_t{query} * rows_of(p) + row] - log_sum[query]);
  }
  params.weights[simt::block_y()][row] += sum;
}

}  // namespace kv::cuda
