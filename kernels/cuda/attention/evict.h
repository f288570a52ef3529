// Scores and eviction by them, as variants/retention/h2o.cc and tova.cc have it: attention adds up what probability
// each row got; once all slots are in use, the next token takes the slot of the smallest score outside the newest
// `recent` tokens; of equal ones the lowest slot. The choice stays on the GPU: it lands in the slot list that
// append_rows reads.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/simt/simt.h"
#include "kernels/math.h"

namespace kv::cuda {

inline constexpr int kEvictWarps = 4;

struct Candidate {
  float score;
  int32_t slot;  // -1: none
};

KV_DEVICE Candidate lighter(const Candidate& a, const Candidate& b) {
  if (a.slot < 0) return b;
  if (b.slot < 0) return a;
  if (is_lighter(a.score, b.score)) return a;
  if (is_lighter(b.score, a.score)) return b;
  return a.slot < b.slot ? a : b;
}

KV_DEVICE Candidate lightest_of_thread(const EvictParams& p, const ScoredSlots& head) {
  Candidate best{0.0f, -1};
  for (int slot = simt::thread(); slot < p.budget; slot += simt::threads()) {
    // The token that is coming is one of the recent.
    if (head.token[slot] > p.count - p.recent) continue;
    best = lighter(best, {head.score[slot], slot});
  }
  return best;
}

KV_DEVICE Candidate lightest_of_block(Candidate best) {
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) {
    const Candidate other{simt::shuffle_xor(best.score, mask), simt::shuffle_xor(best.slot, mask)};
    best = lighter(best, other);
  }
  auto* of_warp = reinterpret_cast<Candidate*>(simt::shared_memory());  // [kEvictWarps]
  if (simt::lane() == 0) of_warp[simt::warp()] = best;
  simt::sync_block();
  for (int warp = 0; warp < kEvictWarps; ++warp) best = lighter(best, of_warp[warp]);
  return best;
}

// For a policy that asks the newest query alone; all scores have been read.
KV_DEVICE void forget_scores(const EvictParams& p, const ScoredSlots& head) {
  for (int slot = simt::thread(); slot < p.budget; slot += simt::threads()) head.score[slot] = 0.0f;
}

inline constexpr size_t kEvictSharedBytes = kEvictWarps * sizeof(Candidate);

// Grid: [heads]; kEvictWarps warps, kEvictSharedBytes.
KV_KERNEL choose_slot(EvictParams p) {
  const ScoredSlots head = p.heads[simt::block_x()];
  const bool full = p.count >= p.budget;
  const Candidate victim = full ? lightest_of_block(lightest_of_thread(p, head)) : Candidate{0.0f, p.count};
  if (full && p.newest_query) forget_scores(p, head);
  if (simt::thread() != 0) return;
  head.token[victim.slot] = p.count;
  head.score[victim.slot] = 0.0f;
  p.slot[simt::block_x()] = victim.slot;
}

// H2O's scores (Zhang et al. 2023, arXiv:2306.14048), what probability each row got, summed over the queries:
// attention keeps its raw scores, which are probabilities only when the merge knows a query's whole sum. A thread
// has a row and adds the queries up in their order, so that every run gives the same bits.
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
