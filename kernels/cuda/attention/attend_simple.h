// Attention in its plainest form: a warp takes one query over the rows of one split, one row after the other.
// Any encodings, any group, any chunk of tokens, one kernel for all. Each query reads the rows for itself, so
// this is the oracle of the fast kernels and the path of what they leave out, not the way to speed.
#pragma once

#include <cmath>

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

inline constexpr int kAttendWarps = 4;

KV_DEVICE float sum_of_lanes(float x) {
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) x += simt::shuffle_xor(x, mask);
  return x;
}

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
    const bool raw = row >= p.rows;
    const Layout& layout = raw ? params.tail : params.layout;
    const RowPair at = raw ? locate(layout, p.tail, row - p.rows) : locate(layout, p.pages, row);
    float score = 0.0f;
    if (holds) {
      decode_octet(layout.k.encoding, head_dim, at.k, first, x);
      for (int i = 0; i < kOctet; ++i) score = simt::fma(q[i], x[i], score);
    }
    score = sum_of_lanes(score);
    if (p.logits && simt::lane() == 0) p.logits[int64_t{query} * rows_of(p) + row] = score;
    if (holds) decode_octet(layout.v.encoding, head_dim, at.v, first, x);
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

}  // namespace kv::cuda
