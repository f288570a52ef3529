// What a block's lanes have found, put together in shared memory: one partial result a query, and the output
// where nothing else is missing.
#pragma once

#include "kernels/cuda/attention/merging.h"

namespace kv::cuda {

// Below every score, and still finite, so that the difference of two of them is 0.
inline constexpr float kNoScore = -1e30f;

// For each of kParts parts of the rows and each query: the weighted sum, the maximum and the sum.
template <int kHeadDim, int kParts, int kQueries>
struct BlockResults {
  static constexpr int kStride = kHeadDim + 2;
  static constexpr int kBytes = kParts * kQueries * kStride * 4;

  float* all;

  KV_DEVICE float* at(int part, int query) const { return all + (part * kQueries + query) * kStride; }

  // Adds the parts up in their order; `first` is the partial result of query 0.
  KV_DEVICE void merge(const Partials& to, int64_t first, int queries) const {
    for (int element = simt::thread(); element < queries * kHeadDim; element += simt::threads()) {
      const int query = element / kHeadDim, d = element % kHeadDim;
      float max = kNoScore, sum = 0.0f, value = 0.0f;
      for (int part = 0; part < kParts; ++part) max = simt::larger(max, at(part, query)[kHeadDim]);
      for (int part = 0; part < kParts; ++part) {
        const float factor = simt::exp2(at(part, query)[kHeadDim] - max);
        sum = simt::fma(at(part, query)[kHeadDim + 1], factor, sum);
        value = simt::fma(at(part, query)[d], factor, value);
      }
      to.values[(first + query) * kHeadDim + d] = value;
      if (d != 0) continue;
      to.max[first + query] = sum > 0.0f ? max : -INFINITY;
      to.sum[first + query] = sum;
    }
  }
};

// What a block of a split-KV kernel has to do: which rows of which queries. What loops need is copied, since
// no compiler keeps it in registers across asynchronous copies otherwise.
struct BlockTask {
  const Problem& problem;
  WorkItem item;
  const Page* pages;
  const float* q;            // [queries, head_dim]
  int first_query, queries;  // of the problem's group * n
  int first_row;             // of the pages or the tail, among all rows
  int end;                   // of the item, or earlier, where no query sees more

  // Rows of the pages or the tail that a query sees.
  KV_DEVICE int seen(int query) const {
    const int rows = problem.visible + (first_query + query) % problem.n - first_row;
    return rows < end ? rows : end;
  }
  // What every query sees: the first token's.
  KV_DEVICE int seen_by_all() const {
    const int rows = problem.visible - first_row;
    return rows < end ? rows : end;
  }
  // Where a query's scores are kept, from the pages' or the tail's first row on, if they are asked for.
  KV_DEVICE float* logits(int query) const {
    return problem.logits + (first_query + query) * int64_t{rows_of(problem)} + first_row;
  }
};

KV_DEVICE BlockTask block_task(const DecodeParams& params, int most_queries) {
  const WorkItem item = params.items[simt::block_x()];
  const Problem& p = params.merge.problems[item.problem];
  const int first = simt::block_y() * most_queries, left = params.merge.group * p.n - first;
  const int first_row = params.tail ? p.rows : 0, last_seen = p.visible + p.n - 1 - first_row;
  return {.problem = p,
          .item = item,
          .pages = params.tail ? p.tail : p.pages,
          .q = p.q + int64_t{first} * params.merge.head_dim,
          .first_query = first,
          .queries = left < most_queries ? left : most_queries,
          .first_row = first_row,
          .end = item.end < last_seen ? item.end : last_seen};
}

// The block's partial results, and its queries' outputs if it is the last to have some. `shared`: 4 bytes of
// shared memory that the results do not lie in.
template <class Results>
KV_DEVICE void finish(const DecodeParams& params, const BlockTask& task, const Results& results,
                      std::byte* shared) {
  const MergeParams& merge = params.merge;
  results.merge(merge.partials, partial_of(task.problem, merge.group, task.item.split, task.first_query),
                task.queries);
  if (!params.counters) return;
  unsigned* counter = params.counters + task.item.problem * simt::blocks_y() + simt::block_y();
  if (!arrives_last(counter, task.problem.splits, shared)) return;
  merge_queries(merge, task.item.problem, task.first_query, task.queries);
}

}  // namespace kv::cuda
