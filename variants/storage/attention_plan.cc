#include "variants/storage/attention_plan.h"

#include <algorithm>

namespace kv {
namespace {

int32_t queries_of(const AttentionPlan& plan, const cuda::Problem& p) { return plan.group * p.n; }

int32_t blocks(int32_t things, int32_t of_block) { return (things + of_block - 1) / of_block; }

// Rows of a work item when `rows`, those of all problems, each as often as blocks of queries read it, are to
// keep so many multiprocessors busy: enough items that their ends overlap, none so small that its partial
// result costs more than its rows.
int32_t item_rows(int64_t rows, int multiprocessors) {
  constexpr int64_t kItemsEach = 12;  // three blocks at a time, four times over
  constexpr int64_t kLeast = 64;
  const int64_t each = rows / (kItemsEach * multiprocessors);
  return static_cast<int32_t>(std::clamp<int64_t>(each, kLeast, cuda::kMostItemRows));
}

// Cuts rows [0, rows) of a problem's pages, or of its tail, into equal items of about `each` rows that begin
// at multiples of 64; returns how many partial results the problem has now.
int32_t cut_rows(int32_t problem, int32_t rows, bool of_tail, int32_t each, int32_t splits,
                 std::vector<cuda::WorkItem>& items) {
  if (rows == 0) return splits;
  const int32_t parts = blocks(rows, each);
  const int32_t step = blocks(blocks(rows, parts), 64) * 64;
  for (int32_t begin = 0; begin < rows; begin += step) {
    items.push_back({problem, splits++, begin, std::min(begin + step, rows), of_tail});
  }
  return splits;
}

}  // namespace

// From shapes alone, so that results do not depend on what else runs.
void AttentionPlan::cut(const cuda::Gpu& gpu, Cut how) {
  bool tails = false;
  for (const cuda::Problem& p : problems) {
    most_queries = std::max(most_queries, queries_of(*this, p));
    tails = tails || p.tail_rows > 0;
  }
  const cuda::Instance found = gpu.decode_instance(layout, most_queries);
  const bool apart = tails && !found.takes_tail;
  // Blocks of both launches must have the same queries of a problem.
  const bool fits = !apart || gpu.decode_instance(tail, most_queries).queries == found.queries;
  block_queries = how != Cut::kPlain && fits ? found.queries : 0;
  int64_t read = 0;
  for (const cuda::Problem& p : problems) {
    if (block_queries) read += int64_t{cuda::rows_of(p)} * blocks(queries_of(*this, p), block_queries);
  }
  const int32_t each = how == Cut::kWhole ? cuda::kMostItemRows : item_rows(read, gpu.info().multiprocessors);
  for (int32_t i = 0; i < count(); ++i) {
    cuda::Problem& p = problems[static_cast<size_t>(i)];
    if (block_queries) {
      p.splits = cut_rows(i, p.rows, false, each, 0, items[0]);
      p.splits = cut_rows(i, p.tail_rows, true, each, p.splits, items[apart]);
    } else {
      p.splits = (cuda::rows_of(p) + kPlainRows - 1) / kPlainRows;
    }
    p.first_partial = partials;
    partials += int64_t{p.splits} * queries_of(*this, p);
    most_splits = std::max(most_splits, p.splits);
  }
}

size_t AttentionPlan::counters() const {
  return block_queries ? problems.size() * static_cast<size_t>(blocks(most_queries, block_queries)) : 0;
}

void AttentionPlan::run(cuda::Gpu& gpu, const Placed& at) const {
  if (block_queries) {
    decode(gpu, at, {0, items[0].size()});
    decode_tails(gpu, at);
  } else {
    attend_simple(gpu, at, {0, problems.size()}, {0, static_cast<size_t>(most_splits)});
  }
  merge(gpu, at);
}

void AttentionPlan::decode(cuda::Gpu& gpu, const Placed& at, const ItemRange& range) const {
  launch(gpu, at, layout, at.items[0] + range.first, range.count);
}

void AttentionPlan::decode_tails(cuda::Gpu& gpu, const Placed& at) const {
  launch(gpu, at, tail, at.items[1], items[1].size());
}

void AttentionPlan::launch(cuda::Gpu& gpu, const Placed& at, const cuda::Layout& of,
                           const cuda::WorkItem* first, size_t count) const {
  if (count == 0) return;
  gpu.decode(
      {of, tail, first, {at.problems, at.partials, group, head_dim, at.log_sum, most_queries}, at.counters},
      static_cast<int>(count));
}

void AttentionPlan::attend_simple(cuda::Gpu& gpu, const Placed& at, const ItemRange& some,
                                  const ItemRange& splits) const {
  if (splits.count == 0) return;
  gpu.attend_simple({layout, tail, at.problems + some.first, at.partials, group, kPlainRows,
                     static_cast<int32_t>(splits.first)},
                    static_cast<int>(some.count), static_cast<int>(splits.count), most_queries);
}

void AttentionPlan::merge(cuda::Gpu& gpu, const Placed& at) const {
  if (block_queries && at.counters) return;  // its last blocks have
  gpu.merge({at.problems, at.partials, group, head_dim, at.log_sum, most_queries}, count());
}

}  // namespace kv
