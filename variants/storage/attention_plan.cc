#include "variants/storage/attention_plan.h"

#include <algorithm>
#include <cmath>

namespace kv {
namespace {

int32_t queries_of(const AttentionPlan& plan, const cuda::Problem& p) { return plan.group * p.n; }

int32_t blocks(int32_t things, int32_t of_block) { return (things + of_block - 1) / of_block; }

// Bytes of a row of a head, K and V.
double row_bytes(const cuda::Layout& layout) {
  const auto of = [](const cuda::SideLayout& side) {
    return static_cast<double>(side.data_bytes + side.meta_bytes) / side.encoding.group;
  };
  return of(layout.k) + of(layout.v);
}

// Rows of a work item. A wave is the items that the GPU works on at once: it takes as long as one item alone, or as the memory
// needs for all of them. Many short items fill the last wave, and each costs its begin and a read in the merge.
int32_t item_rows(const AttentionPlan& plan, const cuda::Gpu& gpu, int64_t slots, int32_t most) {
  constexpr int32_t kSizes[] = {64,  128,  192,  256,  384,  512,
                                768, 1024, 1536, 2048, 3072, cuda::kMostItemRows};
  const cuda::ItemCosts costs = gpu.item_costs();
  const double bytes_per_us = gpu.info().bytes_per_us, bytes = row_bytes(plan.layout);
  int32_t best = most;
  double least_us = INFINITY;
  for (const int32_t each : kSizes) {
    if (each > most) break;
    int64_t items = 0;
    int32_t most_splits = 0, longest = 0;
    for (const cuda::Problem& p : plan.problems) {
      const int32_t splits = blocks(p.rows, each) + blocks(p.tail_rows, each);
      items += int64_t{splits} * blocks(queries_of(plan, p), plan.block_queries);
      most_splits = std::max(most_splits, splits);
      longest = std::max(longest, std::min(each, p.rows));
    }
    const double alone_us = costs.begin_us + longest * (plan.head_dim / 128.0) / costs.rows_per_us;
    const auto wave_us = [&](int64_t of) {
      return of == 0 ? 0.0 : std::max(alone_us, static_cast<double>(of) * longest * bytes / bytes_per_us);
    };
    const double us = static_cast<double>(items / slots) * wave_us(slots) + wave_us(items % slots) +
                      costs.split_us * most_splits;
    if (us < least_us) least_us = us, best = each;
  }
  return best;
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
  const int64_t slots = int64_t{gpu.info().multiprocessors} * found.blocks_of_sm;
  const int32_t each = how == Cut::kEven && block_queries ? item_rows(*this, gpu, slots, found.most_item_rows)
                                                          : found.most_item_rows;
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
