// Attention's two matrix products without the softmax between them, by Eigen: what a well-kept library makes
// of prefill's arithmetic. Of the benchmark alone, compiled for this very machine.
#pragma once

#include <cstdint>

namespace kv {

// scores = q k^T and out = scores v, for q and out [queries, head_dim], k and v [rows, head_dim], scores
// [queries, rows]. On the calling thread.
void eigen_gemms(const float* q, const float* k, const float* v, int64_t queries, int64_t rows, int head_dim,
                 float* scores, float* out);

}  // namespace kv
