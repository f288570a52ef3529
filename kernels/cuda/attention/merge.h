// Partial results to outputs in a launch of its own: after the plain kernel, and as the oracle of the fast
// one, whose last blocks merge.
#pragma once

#include "kernels/cuda/attention/merging.h"

namespace kv::cuda {

inline constexpr int kMergeWarps = 4;
inline constexpr int kMergeQueries = 4;  // of a block

// Grid: [ceil(group * most tokens / kMergeQueries), problems]; kMergeWarps warps.
KV_KERNEL merge_splits(MergeParams params) {
  const Problem& p = params.problems[simt::block_y()];
  const int first = simt::block_x() * kMergeQueries, left = params.group * p.n - first;
  merge_queries(params, simt::block_y(), first, left < kMergeQueries ? left : kMergeQueries);
}

}  // namespace kv::cuda
