// Rows to an f32 copy of them, for caches that are read through one (read=copy): attention then runs over the
// copy. The arm that fused kernels are compared with, since it reads and writes far more than they do.
#pragma once

#include "kernels/cuda/octet.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/simt.h"

namespace kv::cuda {

inline constexpr int kCopyWarps = 4;

KV_DEVICE void copy_octet(const Encoding& encoding, int head_dim, const StoredRow& from, int first,
                          float* to) {
  float x[kOctet];
  decode_octet(encoding, head_dim, from, first, x);
  KV_UNROLL
  for (int i = 0; i < kOctet; ++i) to[i] = x[i];
}

// A warp takes a row of K and the same of V, a lane an octet. Grid: [ceil(most rows / kCopyWarps), jobs];
// kCopyWarps warps.
KV_KERNEL copy_rows(CopyParams params) {
  const CopyJob job = params.jobs[simt::block_y()];
  const int row = simt::block_x() * kCopyWarps + simt::warp(), first = simt::lane() * kOctet;
  const int head_dim = params.layout.head_dim;
  if (row >= job.rows + job.tail_rows || first >= head_dim) return;
  const bool raw = row >= job.rows;
  const Layout& layout = raw ? params.tail : params.layout;
  const RowPair at = raw ? locate(layout, job.tail, row - job.rows) : locate(layout, job.pages, row);
  const int64_t to = int64_t{row} * head_dim + first;
  copy_octet(layout.k.encoding, head_dim, at.k, first, job.k + to);
  copy_octet(layout.v.encoding, head_dim, at.v, first, job.v + to);
}

}  // namespace kv::cuda
