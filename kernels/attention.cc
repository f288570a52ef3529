// Cuts problems into tasks, runs the tasks on all threads, and merges partial results in a fixed order.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "kernels/attention_task.h"
#include "kernels/cpu/isa.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

// Splits cost a merge, so only steps with few queries, which have no other parallelism, are split along the
// rows.
constexpr int64_t kMaxSplitQueries = 128;

constexpr int64_t kThreadedWork = 1 << 17;  // multiply-adds

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How one problem is cut. Depends on shapes alone, so that the bits of the result do too.
struct Cut {
  int64_t queries, rows, blocks, splits;
  explicit Cut(const HeadQueries& p) {
    queries = p.group * p.n;
    rows = p.visible + p.n - 1;
    blocks = ceil_div(queries, kQueryBlock);
    splits = queries <= kMaxSplitQueries ? ceil_div(rows, kSplitRows) : 1;
  }
  int64_t tasks() const { return blocks * splits; }
  int64_t split_rows() const { return splits > 1 ? kSplitRows : rows; }
};

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out pieces of the workspace; with no workspace it only adds up.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* p = base_ ? base_ + used_ : nullptr;
    used_ += round_up(sizeof(T) * static_cast<size_t>(count));
    return reinterpret_cast<T*>(p);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// A problem's share of the workspace: [splits, queries] states, [splits, queries, head_dim] sums, [queries,
// rows] logits.
struct Partials {
  SoftmaxState* state;
  float* sum;
  float* logits;
  Partials(Arena& arena, const HeadQueries& p, const Cut& cut, int head_dim) {
    state = arena.take<SoftmaxState>(cut.splits * cut.queries);
    sum = arena.take<float>(cut.splits * cut.queries * head_dim);
    logits = p.mass ? arena.take<float>(cut.queries * cut.rows) : nullptr;
  }
};

int64_t count_tasks(std::span<const HeadQueries> problems) {
  int64_t tasks = 0;
  for (const HeadQueries& p : problems) tasks += Cut(p).tasks();
  return tasks;
}

void advance(std::span<const Span> spans, SpanCursor& at, int64_t rows) {
  at.row += rows;
  while (at.span < spans.size() && at.row >= spans[at.span].rows) {
    at.row -= spans[at.span].rows;
    ++at.span;
  }
}

AttentionTask* plan(const HeadQueries& p, const Cut& cut, const Partials& partials, int head_dim,
                    AttentionTask* next) {
  SpanCursor start;
  advance(p.spans, start, 0);
  for (int64_t split = 0; split < cut.splits; ++split) {
    const int64_t begin = split * cut.split_rows();
    const int64_t end = std::min(begin + cut.split_rows(), cut.rows);
    for (int64_t first = 0; first < cut.queries; first += kQueryBlock) {
      const int64_t count = std::min<int64_t>(kQueryBlock, cut.queries - first);
      // Rows that none of the block's queries sees are left out (whole prefill: about half of all).
      const int64_t last_token =
          first / p.n == (first + count - 1) / p.n ? (first + count - 1) % p.n : p.n - 1;
      const int64_t row_end = std::min(end, p.visible + last_token);
      const int64_t at = split * cut.queries + first;
      float* logits = partials.logits ? partials.logits + first * cut.rows : nullptr;
      new (next++) AttentionTask{.problem = &p,
                                 .first_query = first,
                                 .queries = count,
                                 .row_begin = begin,
                                 .row_end = row_end,
                                 .start = start,
                                 .state = partials.state + at,
                                 .sum = partials.sum + at * head_dim,
                                 .logits = logits,
                                 .logits_stride = cut.rows};
    }
    if (split + 1 < cut.splits) advance(p.spans, start, cut.split_rows());
  }
  return next;
}

// Merges the splits of one query in their order and writes its output; returns the final state.
SoftmaxState merge_query(const HeadQueries& p, const Cut& cut, const Partials& partials, int64_t query,
                         int head_dim) {
  SoftmaxState state = partials.state[query];
  float* sum = partials.sum + query * head_dim;
  for (int64_t split = 1; split < cut.splits; ++split) {
    const int64_t at = split * cut.queries + query;
    const float* other = partials.sum + at * head_dim;
    const MergeFactors f = merge(state, partials.state[at]);
    for (int x = 0; x < head_dim; ++x) sum[x] = sum[x] * f.a + other[x] * f.b;
  }
  const float norm = 1.0f / state.sum;
  float* out = p.out + query * head_dim;
  for (int x = 0; x < head_dim; ++x) out[x] = sum[x] * norm;
  return state;
}

void add_mass(const HeadQueries& p, const Cut& cut, const Partials& partials, int64_t query,
              const SoftmaxState& state) {
  const float* logits = partials.logits + query * cut.rows;
  const int64_t seen = p.visible + query % p.n;
  for (int64_t row = 0; row < seen; ++row) p.mass[row] += std::exp(logits[row] - state.max) / state.sum;
}

// Multiply-adds of all problems, one for the scores and one for the values.
int64_t work(std::span<const HeadQueries> problems, int head_dim) {
  int64_t sum = 0;
  for (const HeadQueries& p : problems) sum += 2 * p.group * p.n * (p.visible + p.n / 2) * head_dim;
  return sum;
}

// Leaves the sums as they are: what remains of a step is the harness's own cost.
void run_no_task(const AttentionTask& task, int) {
  for (int64_t i = 0; i < task.queries; ++i) task.state[i] = {0.0f, 1.0f};
}

auto task_runner() {
  if (active_isa() == "none") return run_no_task;
  return isa_is_scalar() ? run_task_scalar : run_task_simd;
}

}  // namespace

size_t attention_workspace_bytes(std::span<const HeadQueries> problems, int head_dim) {
  Arena arena(nullptr);
  arena.take<AttentionTask>(count_tasks(problems));
  arena.take<Partials>(static_cast<int64_t>(problems.size()));
  for (const HeadQueries& p : problems) Partials(arena, p, Cut(p), head_dim);
  return arena.used();
}

void attend(std::span<const HeadQueries> problems, int head_dim, std::byte* workspace) {
  Arena arena(workspace);
  const int64_t tasks = count_tasks(problems);
  const int64_t problem_count = static_cast<int64_t>(problems.size());
  AttentionTask* task = arena.take<AttentionTask>(tasks);
  Partials* partials = arena.take<Partials>(problem_count);
  AttentionTask* next = task;
  for (int64_t i = 0; i < problem_count; ++i) {
    const Cut cut(problems[i]);
    new (partials + i) Partials(arena, problems[i], cut, head_dim);
    next = plan(problems[i], cut, partials[i], head_dim, next);
  }
  const auto run = task_runner();
  // Waking threads for a few microseconds of work costs more than the work.
  const bool worth_threads = tasks > 1 && work(problems, head_dim) > kThreadedWork;
#pragma omp parallel if (worth_threads)
  {
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) run(task[i], head_dim);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < problem_count; ++i) {
      const Cut cut(problems[i]);
      for (int64_t query = 0; query < cut.queries; ++query) {
        const SoftmaxState state = merge_query(problems[i], cut, partials[i], query, head_dim);
        if (problems[i].mass) add_mass(problems[i], cut, partials[i], query, state);
      }
    }
  }
}

std::string attention_kernel_name(const Encoding& k, const Encoding& v) {
  const std::string isa(active_isa());
  if (k == v) return isa + "/" + encoding_name(k);
  return isa + "/k:" + encoding_name(k) + ",v:" + encoding_name(v);
}

}  // namespace kv
