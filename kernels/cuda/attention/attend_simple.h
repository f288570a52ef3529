// Plain attention: a warp takes one query over the rows of one split, row by row. One kernel serves all encodings, groups and
// chunks of tokens. Every query reads the rows itself, so it is slow: it is the oracle of the fast kernels and the path of the
// cases that they leave out.
#pragma once

#include "kernels/cuda/attention/results.h"
#include "kernels/cuda/rows/octet.h"

namespace kv::cuda {

inline constexpr int kAttendWarps = 4;

// A lane's part of a query's running softmax.
struct RunningSoftmax {
  float max = -INFINITY, sum = 0.0f;
  float values[kOctet] = {};

  KV_DEVICE void add(float score, const float (&v)[kOctet]) {
    const float higher = score > max ? score : max;
    const float rescale = simt::exp2(max - higher), p = simt::exp2(score - higher);
    max = higher;
    sum = simt::fma(sum, rescale, p);
    for (int i = 0; i < kOctet; ++i) values[i] = simt::fma(values[i], rescale, p * v[i]);
  }
};

// Grid: [ceil(group * most tokens / kAttendWarps), problems, splits from first_split on, of the longest
// problem]; kAttendWarps warps.
KV_KERNEL attend_simple(AttendParams params) {
  const Problem p = params.problems[simt::block_y()];
  const int split = params.first_split + simt::block_z(), queries = params.group * p.n;
  const int query = simt::block_x() * kAttendWarps + simt::warp();
  if (query >= queries || split >= p.splits) return;
  const int head_dim = params.layout.head_dim, first = simt::lane() * kOctet;
  const bool holds = first < head_dim;
  float q[kOctet] = {}, x[kOctet] = {};
  for (int i = 0; holds && i < kOctet; ++i) {
    q[i] = p.q[int64_t{query} * head_dim + first + i] * score_scale(head_dim);
  }
  const int seen = p.visible + query % p.n, begin = split * params.split_rows;
  const int end = begin + params.split_rows < seen ? begin + params.split_rows : seen;
  RunningSoftmax running;
  for (int row = begin; row < end; ++row) {
    const RowPair at = locate(params.layout, params.tail, p, row);
    float score = 0.0f;
    if (holds) {
      decode_octet(head_dim, at.k, first, x);
      for (int i = 0; i < kOctet; ++i) score = simt::fma(q[i], x[i], score);
    }
    score = simt::sum_of_lanes(score, simt::kWarp);
    if (p.logits && simt::lane() == 0) p.logits[int64_t{query} * rows_of(p) + row] = score;
    if (holds) decode_octet(head_dim, at.v, first, x);
    running.add(score, x);
  }
  const int64_t at = partial_of(p, params.group, split, query);
  if (simt::lane() == 0) {
    params.partials.max[at] = running.max;
    params.partials.sum[at] = running.sum;
  }
  for (int i = 0; holds && i < kOctet; ++i) {
    params.partials.values[at * head_dim + first + i] = running.values[i];
  }
}

inline constexpr int kMergeWarps = 4;
inline constexpr int kMergeQueries = 4;  // a block

// Merges partial results into outputs in a launch of its own; the fast kernel's last blocks merge without it.
// Grid: [ceil(group * most tokens / kMergeQueries), problems]; kMergeWarps warps.
KV_KERNEL merge_splits(MergeParams params) {
  const Problem& p = params.problems[simt::block_y()];
  const int first = simt::block_x() * kMergeQueries, left = params.group * p.n - first;
  merge_queries(params, simt::block_y(), first, left < kMergeQueries ? left : kMergeQueries);
}

}  // namespace kv::cuda
