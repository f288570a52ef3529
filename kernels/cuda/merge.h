// Partial results to outputs: a warp a query, its splits in their order, so that every run gives the same
// bits.
#pragma once

#include "kernels/cuda/attend_simple.h"

namespace kv::cuda {

// Grid: [ceil(group * most tokens / kAttendWarps), problems]; kAttendWarps warps.
KV_KERNEL merge_splits(MergeParams params) {
  const Problem p = params.problems[simt::block_y()];
  const int queries = params.group * p.n, query = simt::block_x() * kAttendWarps + simt::warp();
  if (query >= queries) return;
  const int first = simt::lane() * kOctet;
  const Partials& all = params.partials;
  const auto place = [&](int split) { return partial_of(p, params.group, split, query); };
  float max = -INFINITY, sum = 0.0f, values[kOctet] = {};
  for (int split = 0; split < p.splits; ++split)
    max = all.max[place(split)] > max ? all.max[place(split)] : max;
  for (int split = 0; split < p.splits; ++split) {
    const int64_t at = place(split);
    if (all.sum[at] == 0.0f) continue;
    const float factor = simt::exp2(all.max[at] - max);
    sum = simt::fma(all.sum[at], factor, sum);
    for (int i = 0; first < params.head_dim && i < kOctet; ++i) {
      values[i] = simt::fma(all.values[at * params.head_dim + first + i], factor, values[i]);
    }
  }
  const float norm = 1.0f / sum;
  for (int i = 0; first < params.head_dim && i < kOctet; ++i) {
    p.out[int64_t{query} * params.head_dim + first + i] = values[i] * norm;
  }
  if (params.log_sum && simt::lane() == 0) {
    params.log_sum[int64_t{simt::block_y()} * params.most_queries + query] = max + simt::log2(sum);
  }
}

}  // namespace kv::cuda
