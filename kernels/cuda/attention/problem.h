// What attention on a GPU works on, and the partial results that its kernels hand on to each other.
#pragma once

#include <cmath>

#include "kernels/cuda/rows/pages.h"

namespace kv::cuda {

// The queries that read one (sequence, layer, kv head): `group` query heads, n tokens each. Logical rows are
// those of `pages` and then those of `tail`. Token i sees rows [0, visible + i).
struct Problem {
  const float* q;     // [group, n, head_dim]
  float* out;         // [group, n, head_dim]
  const Page* pages;  // of `rows` rows
  const Page* tail;   // of `tail_rows` raw rows
  int32_t rows, tail_rows;
  int32_t n;
  int32_t visible;        // at least 1
  int32_t splits;         // partial results of each query
  int64_t first_partial;  // this problem's first in Partials: [splits, group * n]
  float* logits;          // [group * n, rows + tail_rows] or null: keeps scores, in log2 units
};

// Splits are cut by logical rows, never by pages, so no placement changes a bit of the output.
//
// Of a query and a split: the largest score (log2 units), the sum of exp2(score - max), and the values'
// weighted sum, scaled alike. A split of which a query sees nothing has max -inf and sum 0.
struct Partials {
  float* max;     // [partials]
  float* sum;     // [partials]
  float* values;  // [partials, head_dim]
};

KV_HD inline int32_t rows_of(const Problem& p) { return p.rows + p.tail_rows; }
KV_HD inline int64_t partial_of(const Problem& p, int32_t group, int32_t split, int32_t query) {
  return p.first_partial + int64_t{split} * group * p.n + query;
}

// exp2 instead of exp: q is scaled by this once, and scores are logarithms to base 2.
KV_HD inline float score_scale(int head_dim) {
  return 1.44269504088896341f / std::sqrt(static_cast<float>(head_dim));
}

}  // namespace kv::cuda
