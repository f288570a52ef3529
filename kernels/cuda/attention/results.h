// Merges the results of a block's lanes in shared memory into one partial result a query, and partial results into outputs.
// The order is always that of rows, so every run gives the same bits.
#pragma once

#include "kernels/cuda/rows/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

// Some rows' largest score, and their sums of weights and of some elements' weighted values, scaled by exp2(-max).
template <int kElements>
struct Merged {
  float max = -INFINITY, sum = 0.0f, value[kElements] = {};

  // Adds parts in their order.
  template <int kParts>
  KV_DEVICE void add(const Merged (&part)[kParts]) {
    float higher = max;
    for (const Merged& one : part) higher = simt::larger(higher, one.max);
    if (higher == -INFINITY) return;  // the query saw none of these rows
    const float rescale = simt::exp2(max - higher);
    max = higher;
    sum *= rescale;
    for (float& own : value) own *= rescale;
    for (const Merged& one : part) {
      const float factor = simt::exp2(one.max - higher);
      sum = simt::fma(one.sum, factor, sum);
      for (int e = 0; e < kElements; ++e) value[e] = simt::fma(one.value[e], factor, value[e]);
    }
  }
};

// Elements that a thread merges, read by one instruction.
inline constexpr int kMergedAtOnce = 4;

// Elements [d, d + kMergedAtOnce) of a query, merged over its splits. Several splits are read at once, since the reads take
// longest: no read depends on another's result or on a branch.
KV_DEVICE Merged<kMergedAtOnce> merge_elements(const Problem& p, const MergeParams& params, int query,
                                               int d) {
  constexpr int kSplitsAtOnce = 8;
  const Partials& all = params.partials;
  const int splits = p.splits;
  const int64_t of_first = partial_of(p, params.group, 0, query), apart = int64_t{params.group} * p.n;
  Merged<kMergedAtOnce> merged;
  for (int first = 0; first < splits; first += kSplitsAtOnce) {
    float max[kSplitsAtOnce], sum[kSplitsAtOnce];
    float4 value[kSplitsAtOnce];
    KV_UNROLL
    for (int i = 0; i < kSplitsAtOnce; ++i) {
      const int split = simt::smaller(first + i, splits - 1);  // the last one again, which does not count
      const int64_t at = of_first + split * apart;
      value[i] = simt::read_fresh4(all.values + at * params.head_dim + d);
      max[i] = simt::read_fresh(all.max + at);
      sum[i] = simt::read_fresh(all.sum + at);
    }
    Merged<kMergedAtOnce> part[kSplitsAtOnce];
    for (int i = 0; i < kSplitsAtOnce; ++i) {
      if (first + i < splits) part[i] = {max[i], sum[i], {value[i].x, value[i].y, value[i].z, value[i].w}};
    }
    merged.add(part);
  }
  return merged;
}

// Merges queries [first, first + count) of a problem; all threads of a block call it.
KV_DEVICE void merge_queries(const MergeParams& params, int problem, int first, int count) {
  const Problem& p = params.problems[problem];
  for (int i = kMergedAtOnce * simt::thread(); i < count * params.head_dim;
       i += kMergedAtOnce * simt::threads()) {
    const int query = first + i / params.head_dim, d = i % params.head_dim;
    const auto merged = merge_elements(p, params, query, d);
    float* const to = p.out + int64_t{query} * params.head_dim + d;
    for (int e = 0; e < kMergedAtOnce; ++e) to[e] = merged.value[e] / merged.sum;
    if (params.log_sum && d == 0) {
      params.log_sum[int64_t{problem} * params.most_queries + query] = merged.max + simt::log2(merged.sum);
    }
  }
}

// True in the last of `all` blocks that count themselves. The counter is then 0, as before the first, and the writes that other
// blocks made before they counted are visible. `shared`: 4 bytes of shared memory.
KV_DEVICE bool arrives_last(unsigned* counter, int all, std::byte* shared) {
  auto* order = reinterpret_cast<unsigned*>(shared);
  const auto last = static_cast<unsigned>(all) - 1;
  simt::sync_block();  // all threads have written before one of them counts the block
  if (simt::thread() == 0) *order = simt::count_up(counter, last);
  simt::sync_block();
  return *order == last;
}

// Blocks an SM to ask for, of at most `most`: more than shared memory holds would only leave each fewer registers.
constexpr int blocks_that_fit(int shared_bytes, int most) {
  const int fit = simt::kSharedOfSm / (shared_bytes + 1024);
  return fit < 1 ? 1 : fit < most ? fit : most;
}

// Less than every score but finite, so that the difference of two is 0.
inline constexpr float kNoScore = -1e30f;

// The weighted sum, the maximum and the sum of each query over each of kParts parts of the rows.
template <int kHeadDim, int kParts, int kQueries>
struct BlockResults {
  static constexpr int kStride = kHeadDim + 2;
  static constexpr int kBytes = kParts * kQueries * kStride * 4;

  float* all;

  KV_DEVICE float* at(int part, int query) const { return all + (part * kQueries + query) * kStride; }

  // Adds the parts in their order; `first` is the partial result of query 0.
  KV_DEVICE void merge(const Partials& to, int64_t first, int queries) const {
    for (int element = simt::thread(); element < queries * kHeadDim; element += simt::threads()) {
      const int query = element / kHeadDim, d = element % kHeadDim;
      Merged<1> part[kParts], merged;
      for (int i = 0; i < kParts; ++i) {
        const float* own = at(i, query);
        part[i] = {own[kHeadDim], own[kHeadDim + 1], {own[d]}};
      }
      merged.add(part);
      to.values[(first + query) * kHeadDim + d] = merged.value[0];
      if (d != 0) continue;
      to.max[first + query] = merged.sum > 0.0f ? merged.max : -INFINITY;
      to.sum[first + query] = merged.sum;
    }
  }
};

// A block's work in a split-KV kernel: its rows and queries. Values that loops use are copied here; compilers would not keep
// them in registers across asynchronous copies.
struct BlockTask {
  const Problem& problem;
  const Page* pages;
  const float* q;            // [queries, head_dim]
  int first_query, queries;  // among the problem's group * n
  int first_token;           // none of the queries is of an earlier one
  int first_row;             // of the pages or the tail, among all rows
  int end;                   // the item's end, or earlier if none of the queries sees more

  // Rows of the pages or the tail that a token's queries see; every later token sees them too.
  KV_DEVICE int seen_by_token(int token) const {
    const int rows = problem.visible + token - first_row;
    return rows < end ? rows : end;
  }
  KV_DEVICE int seen(int query) const { return seen_by_token((first_query + query) % problem.n); }
  // A query's scores from the pages' or the tail's first row on, if they are kept.
  KV_DEVICE float* logits(int query) const {
    return problem.logits + (first_query + query) * int64_t{rows_of(problem)} + first_row;
  }
};

// Queries [first, first + most) of a problem, as far as there are so many. Those of one head are of consecutive tokens, and
// those of several heads are of all tokens.
KV_DEVICE BlockTask task_of(const DecodeParams& params, const WorkItem& item, int first, int most) {
  const Problem& p = params.merge.problems[item.problem];
  const int queries = simt::smaller(params.merge.group * p.n - first, most), token = first % p.n;
  const bool one_head = token + queries <= p.n;
  const int first_row = item.of_tail ? p.rows : 0;
  const int last_seen = p.visible + simt::smaller(token + queries, p.n) - 1 - first_row;
  return {.problem = p,
          .pages = item.of_tail ? p.tail : p.pages,
          .q = p.q + int64_t{first} * params.merge.head_dim,
          .first_query = first,
          .queries = queries,
          .first_token = one_head ? token : 0,
          .first_row = first_row,
          .end = simt::smaller(item.end, last_seen)};
}

KV_DEVICE BlockTask block_task(const DecodeParams& params, const WorkItem& item, int most_queries) {
  return task_of(params, item, simt::block_y() * most_queries, most_queries);
}

// Writes a block's results as partial ones; the problem's last block merges those of all items, if `counters` are there.
// `flag`: 4 bytes of shared memory. All threads of the block call it.
template <class Results>
KV_DEVICE void write_results(const DecodeParams& params, const WorkItem& item, const BlockTask& task,
                             const Results& results, std::byte* flag) {
  const MergeParams& merge = params.merge;
  results.merge(merge.partials, partial_of(task.problem, merge.group, item.split, task.first_query),
                task.queries);
  if (!params.counters) return;
  unsigned* counter = params.counters + item.problem * simt::blocks_y() + simt::block_y();
  if (arrives_last(counter, task.problem.splits, flag))
    merge_queries(merge, item.problem, task.first_query, task.queries);
}

}  // namespace kv::cuda
