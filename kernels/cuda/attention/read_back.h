// Decodes rows to an f32 copy, over which attention then runs. read=copy is the arm to compare fused kernels with: it reads and
// writes far more bytes. With positions=cache (variants/storage/rotated_rows.h) keys are rotated (RoPE) as well.
#pragma once

#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/rows/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

inline constexpr int kCopyWarps = 4;

// The same as rotate() in variants/core/rope.h.
KV_DEVICE void rotate_key(const CopyParams& p, int32_t place, float* key) {
  const int half = p.layout.head_dim / 2;
  const float* angles = p.angles + int64_t{place} * p.layout.head_dim;
  for (int i = simt::lane(); i < half; i += simt::kWarp) {
    float& first = key[p.halves ? i : 2 * i];
    float& second = key[p.halves ? i + half : 2 * i + 1];
    const float a = first, b = second, c = angles[i], s = angles[half + i];
    first = a * c - b * s;
    second = a * s + b * c;
  }
}

// A warp takes a row of K and the same of V, a lane an octet. Grid: [ceil(most rows / kCopyWarps), jobs];
// kCopyWarps warps.
KV_KERNEL copy_rows(CopyParams params) {
  const CopyJob job = params.jobs[simt::block_y()];
  const int row = simt::block_x() * kCopyWarps + simt::warp(), first = simt::lane() * kOctet;
  const int head_dim = params.layout.head_dim;
  if (row >= job.rows + job.tail_rows) return;
  const RowPair at = locate(params.layout, params.tail, job, row);
  float *const k = job.k + int64_t{row} * head_dim, *const v = job.v + int64_t{row} * head_dim;
  const auto copy_octet = [&](const StoredRow& from, float* to) {
    float x[kOctet];
    decode_octet(head_dim, from, first, x);
    KV_UNROLL
    for (int i = 0; i < kOctet; ++i) to[first + i] = x[i];
  };
  if (first < head_dim) copy_octet(at.k, k), copy_octet(at.v, v);
  if (!job.place) return;
  simt::sync_warp();  // lanes rotate elements that others copied
  rotate_key(params, job.place[row], k);
}

}  // namespace kv::cuda
