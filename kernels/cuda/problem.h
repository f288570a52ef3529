// What attention on a GPU works on, and the partial results that its kernels hand on to each other.
#pragma once

#include <cmath>

#include "kernels/cuda/pages.h"

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
  int64_t first_partial;  // this problem's first in Partials: [splits, group * n]
  float* logits;          // [group * n, rows + tail_rows] or null: keeps scores, in log2 units
};

// Of a query and a split: the largest score (log2 units), the sum of exp2(score - max), and the values'
// weighted sum, scaled alike. A split of which a query sees nothing has max -inf and sum 0.
struct Partials {
  float* max;     // [partials]
  float* sum;     // [partials]
  float* values;  // [partials, head_dim]
};

// The rows of a partial result. Splits are cut by logical rows, never by pages, so no placement changes a
// bit of the output.
inline constexpr int kSplitRows = 512;

KV_HD inline int32_t rows_of(const Problem& p) { return p.rows + p.tail_rows; }
KV_HD inline int32_t splits_of(const Problem& p, int32_t split_rows) {
  return (rows_of(p) + split_rows - 1) / split_rows;
}

// exp2 instead of exp: q is scaled by this once, and scores are logarithms to base 2.
KV_HD inline float score_scale(int head_dim) {
  return 1.44269504088896341f / std::sqrt(static_cast<float>(head_dim));
}

}  // namespace kv::cuda
