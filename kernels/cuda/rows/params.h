// What the kernels work on, and what each is launched with. Plain data, so that the host can fill it in without a
// CUDA compiler; all pointers are the device's.
#pragma once

#include <cmath>

#include "kernels/cuda/rows/pages.h"

namespace kv::cuda {

// New units of one (sequence, layer, kv head): unit u goes to unit slots[u] of the pages, or to first + u
// where there are no slots.
struct AppendJob {
  const std::byte* k;  // [units * unit_rows, head_dim], f32 or f16
  const std::byte* v;
  const Page* pages;
  const int32_t* slots;  // [units] or null
  int32_t first;
  int32_t units;
};

struct AppendParams {
  Layout layout;
  const AppendJob* jobs;  // [blocks_y]
  bool half;              // the rows are f16
};

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

// All rows of one (sequence, layer, kv head) as f32: those of the pages, and then the raw ones.
struct CopyJob {
  const Page* pages;
  const Page* tail;
  int32_t rows, tail_rows;
  float* k;  // [rows + tail_rows, head_dim] out
  float* v;
  const int32_t* place;  // [rows + tail_rows] or null: keys are RoPE-rotated to these cache positions
};

struct CopyParams {
  Layout layout, tail;
  const CopyJob* jobs;  // [blocks_y]
  const float* angles;  // [places, 2, head_dim / 2] cosines and sines, or null
  // Half-split RoPE: channels i and i + head_dim / 2 are a pair; else interleaved: 2i and 2i + 1.
  bool halves;
};

struct AttendParams {
  Layout layout, tail;      // of the pages and of the raw rows behind them
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t split_rows;
  int32_t first_split = 0;  // that of block_z 0
};

// Tensor cores cut their sums off and do not round them (tests' simt/tensor_core.h has the sources), so a sum's
// error grows with its rows. What is merged from items of so many rows stays far under the 5e-6 demanded.
inline constexpr int32_t kMostItemRows = 4096;

// A block's work: rows [begin, end) of a problem's pages, or of its raw tail.
struct WorkItem {
  int32_t problem;
  int32_t split;  // which of the problem's partial results this is
  int32_t begin, end;
  bool of_tail;  // whose rows follow those of the pages
};

struct MergeParams {
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t head_dim;
  // [problems, most_queries] or null: log2 of the sum of exp2(score), by which a score becomes a probability.
  float* log_sum;
  int32_t most_queries;
};

inline constexpr int kDecodeWarps = 4;  // of a block

struct DecodeParams {
  Layout layout, tail;    // of the pages and of the raw rows behind them
  const WorkItem* items;  // [blocks_x]
  MergeParams merge;
  // [problems, blocks_y] zeros, which are zeros again afterwards: the last block of a problem's splits merges
  // them. Or null: that is left to a launch of merge_splits.
  unsigned* counters;
};

struct AttentionWeightsParams {
  const Problem* problems;  // [blocks_y], with logits
  const float* log_sum;     // [problems, most_queries] of the merge
  float* const* weights;    // [problems]: [rows] each, added to; or null
  int32_t group;
  int32_t most_queries;
};

// The state of one (sequence, layer, kv head).
struct ScoredSlots {
  int32_t* token;  // [budget] the token in each slot
  float* score;    // [budget]
};

struct EvictParams {
  const ScoredSlots* heads;  // [blocks_x]
  int32_t* slot;             // [heads] out: the coming token's
  int32_t budget, recent;
  int32_t count;              // tokens so far, which is the number of the coming one
  bool newest_query = false;  // scores are what the newest query alone gave: they start from 0 after a choice
};

// Blocks an SM that are worth trying, since nobody knows beforehand which reads fastest. It holds five at a time.
inline constexpr int kReadBlocks[] = {2, 4, 5, 20};

struct ReadParams {
  const std::byte* from;  // aligned to 16
  int64_t words;          // of 16 bytes
  uint32_t* sum;          // out, of one block in 2^32 at most
};

}  // namespace kv::cuda
