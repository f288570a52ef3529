// The kernels' data and launch parameters: plain structs, which the host fills without a CUDA compiler. All pointers are the
// device's.
#pragma once

#include <cmath>

#include "kernels/cuda/rows/pages.h"

namespace kv::cuda {

// New units of one (sequence, layer, KV head): unit u goes to unit slots[u] of the pages, or to first + u if `slots` is null.
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

// The queries that read one (sequence, layer, KV head): `group` query heads, n tokens each. Logical rows are those of `pages`,
// then those of `tail`. Token i sees rows [0, visible + i).
struct Problem {
  const float* q;     // [group, n, head_dim]
  float* out;         // [group, n, head_dim]
  const Page* pages;  // `rows` rows
  const Page* tail;   // `tail_rows` raw rows
  int32_t rows, tail_rows;
  int32_t n;
  int32_t visible;        // at least 1
  int32_t splits;         // partial results a query
  int64_t first_partial;  // this problem's first in Partials: [splits, group * n]
  float* logits;          // [group * n, rows + tail_rows] or null: kept scores, in log2 units
};

// A query's partial results, one a split: the largest score (log2 units), the sum of exp2(score - max), and the weighted sum of
// values with the same factor. If a query sees no row of a split, max is -inf and sum 0. Splits are cut by logical rows, never by
// pages, so no placement changes a bit of the output.
struct Partials {
  float* max;     // [partials]
  float* sum;     // [partials]
  float* values;  // [partials, head_dim]
};

KV_HD inline int32_t rows_of(const Problem& p) { return p.rows + p.tail_rows; }
KV_HD inline int64_t partial_of(const Problem& p, int32_t group, int32_t split, int32_t query) {
  return p.first_partial + int64_t{split} * group * p.n + query;
}

// The factor of q. It makes scores base-2 logarithms, for exp2 instead of exp.
KV_HD inline float score_scale(int head_dim) {
  return 1.44269504088896341f / std::sqrt(static_cast<float>(head_dim));
}

// All rows of one (sequence, layer, KV head) as f32: those of the pages, then the raw ones.
struct CopyJob {
  const Page* pages;
  const Page* tail;
  int32_t rows, tail_rows;
  float* k;  // [rows + tail_rows, head_dim] out
  float* v;
  const int32_t* place;  // [rows + tail_rows] or null: cache positions to which keys are RoPE-rotated
};

struct CopyParams {
  Layout layout, tail;
  const CopyJob* jobs;  // [blocks_y]
  const float* angles;  // [places, 2, head_dim / 2] cosines and sines, or null
  // True: half-split RoPE, channels i and i + head_dim / 2 are a pair. False: interleaved, 2i and 2i + 1.
  bool halves;
};

struct AttendParams {
  Layout layout, tail;      // of the pages; of the raw rows behind them
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t split_rows;
  int32_t first_split = 0;  // the split of block_z 0
};

// Tensor cores truncate their sums (sources in the tests' simt/tensor_core.h), so a sum's error grows with its rows. Results
// merged from items of at most this many rows stay far below the limit of 5e-6.
inline constexpr int32_t kMostItemRows = 4096;

// A block's work: rows [begin, end) of a problem's pages, or of its raw tail.
struct WorkItem {
  int32_t problem;
  int32_t split;  // index of the problem's partial result
  int32_t begin, end;
  bool of_tail;  // the rows are those of the tail
};

struct MergeParams {
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t head_dim;
  // [problems, most_queries] or null: log2 of the sum of exp2(score), which turns scores into attention weights.
  float* log_sum;
  int32_t most_queries;
};

inline constexpr int kDecodeWarps = 4;  // a block

struct DecodeParams {
  Layout layout, tail;    // of the pages; of the raw rows behind them
  const WorkItem* items;  // [blocks_x]
  MergeParams merge;
  // [problems, blocks_y] zeros, and zeros again afterwards: the last block of a problem's splits merges them. If null, a launch
  // of merge_splits has to.
  unsigned* counters;
};

struct AttentionWeightsParams {
  const Problem* problems;  // [blocks_y] with logits
  const float* log_sum;     // [problems, most_queries] from the merge
  float* const* weights;    // [problems]: [rows] each to add to, or null
  int32_t group;
  int32_t most_queries;
};

// The eviction state of one (sequence, layer, KV head).
struct ScoredSlots {
  int32_t* token;  // [budget] the token in each slot
  float* score;    // [budget]
};

struct EvictParams {
  const ScoredSlots* heads;  // [blocks_x]
  int32_t* slot;             // [heads] out: the coming token's slot
  int32_t budget, recent;
  int32_t count;              // tokens so far, the index of the coming one
  bool newest_query = false;  // scores come from the newest query alone: they restart from 0 after a choice
};

// Numbers of blocks an SM to try; the fastest is not known beforehand. An SM holds five at a time.
inline constexpr int kReadBlocks[] = {2, 4, 5, 20};

struct ReadParams {
  const std::byte* from;  // aligned to 16
  int64_t words;          // 16 bytes each
  uint32_t* sum;          // out, written by one block in 2^32 at most
};

}  // namespace kv::cuda
