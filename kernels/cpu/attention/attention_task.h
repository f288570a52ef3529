// The unit of work inside attend(): one block of query rows over one range of logical rows. Private to
// kernels/.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/math.h"

namespace kv::cpu {

// A place in a list of spans.
struct SpanCursor {
  size_t span = 0;
  int64_t row = 0;  // within that span
};

// Query row r is token r % n of query head r / n; it sees rows [0, visible + r % n).
struct AttentionTask {
  const HeadQueries* problem;
  std::span<const Span> spans;   // hold the rows from row_begin on, at `start`
  int64_t first_query, queries;  // [first_query, first_query + queries), at most kQueryBlock
  int64_t row_begin, row_end;    // logical rows
  SpanCursor start;              // position of row_begin
  bool resume;                   // state and sum go on from rows before; else they start empty
  SoftmaxState* state;           // [queries]
  float* sum;                    // [queries, head_dim] un-normalised, scaled like state
  // The terms of attention weights, or null: exp(score - base) of each query and row. Each tile of rows has
  // its base, about the largest score so far.
  float* weights;  // [queries, weights_stride], all rows
  float* bases;    // [queries, bases_stride], of all tiles
  int64_t weights_stride, bases_stride;
  // The number of tasks, from this one on, that one thread interleaves, a tile of each in turn. They have the
  // same range of rows, as many queries each, and at most kQueryBlock queries in all.
  size_t together;

  int64_t visible_rows(int64_t query) const { return problem->visible + (first_query + query) % problem->n; }
  const float* query(int64_t i, int head_dim) const { return problem->q + (first_query + i) * head_dim; }
};

// The tasks that threads claim, in order.
struct TaskQueue {
  std::span<const AttentionTask> tasks;
  std::atomic<size_t> claimed = 0;

  // Tasks that belong together; none once all are taken.
  std::span<const AttentionTask> claim() {
    size_t first = claimed.load(std::memory_order_relaxed);
    while (first < tasks.size()) {
      const size_t count = tasks[first].together;
      if (claimed.compare_exchange_weak(first, first + count, std::memory_order_relaxed))
        return tasks.subspan(first, count);
    }
    return {};
  }
};

// Two implementations. Each takes tasks until there are none, and fills each one's state, sum and weights.
void run_tasks_simd(TaskQueue& queue, int head_dim);
void run_tasks_scalar(TaskQueue& queue, int head_dim);

// Moves the cursor past `rows` rows, to the start of the row that follows.
inline void advance(std::span<const Span> spans, SpanCursor& at, int64_t rows) {
  at.row += rows;
  while (at.span < spans.size() && at.row >= spans[at.span].rows) {
    at.row -= spans[at.span].rows;
    ++at.span;
  }
}

}  // namespace kv::cpu
