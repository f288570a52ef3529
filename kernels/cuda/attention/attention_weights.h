// H2O's scores (Zhang et al. 2023, arXiv:2306.14048): what probability each row got, summed over the queries.
//
// Attention keeps its raw scores; only when the merge knows a query's whole sum are they probabilities. A
// thread has a row and adds the queries up in their order, so that every run gives the same bits.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

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
