// Attention with scores in memory, as frameworks without a fused kernel compute it: q k^T, softmax, times v, each a
// whole matrix. The prefill experiment compares the tiled kernels with this plain arm.
#pragma once

#include <cstdint>

#include "harness/workload/workload.h"
#include "variants/core/memory.h"

namespace kv::experiments {

// n tokens of a prompt, from token `first` on, and the rows that they read.
struct PromptQueries {
  const float* q;      // [q_heads, n, head_dim]
  float* out;          // [q_heads, n, head_dim]
  const float *k, *v;  // [kv_heads, tokens, head_dim]: the whole prompt
  int64_t first, n, tokens;
  const float* mask = nullptr;  // [first + n] or null: added to every query's scores; -inf hides a row
  bool causal = true;           // false: every query sees all rows
};

// f32. The scores of all heads, [q_heads, n, first + n], are workspace of `memory`; throws std::bad_alloc if they do
// not fit.
void attend_with_scores(const PromptQueries& prompt, const workload::WorkloadShape& shape, Memory& memory);

// Bytes of the scores. Floating point, since they may exceed any machine's memory.
double score_bytes(const workload::WorkloadShape& shape, int64_t n, int64_t rows);

}  // namespace kv::experiments
