// The inputs of loops over rows of floats. Plain data, the same for every instruction set. Private to
// kernels/cpu.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/prefetcher.h"

namespace kv::cpu {

// Rows of a float format.
struct FloatRows {
  Format format;
  const std::byte* const* row;  // [count], and some behind them that may be read
  int count;
  const float* scale;    // [count], left out of the elements: FP8's; else null
  bool decoded = false;  // they are a decoded tile, in the cache
};

struct FloatWork {
  const AttentionTask& task;
  int head_dim;
  Prefetcher& prefetcher;
};

// Queries as score_block() reads them: for each block, [vector, query, lane] in the order of the load. Where rows
// are loaded small (kFactor of float_loads-inl.h), queries are made large, so that no product is subnormal; `restore` undoes
// both. A task's, in memory that tasks share.
struct PackedQueries {
  float* q;
  float* restore;
  std::optional<Format> packed_for;  // rows of which they are to meet
};

// Not initialised.
struct PackedQueriesScratch {
  alignas(64) float q[kQueryBlock * kMaxHeadDim];
  float restore[kQueryBlock];

  PackedQueries from(int64_t query, int head_dim) { return {q + query * head_dim, restore + query, {}}; }
};

// The order of a task's sums: that of a load of so many vectors.
struct SumOrder {
  int vectors = 1;
};

}  // namespace kv::cpu
