// attend(): cuts problems into tasks, runs them on all threads with the active instruction set, and merges partial
// results in a fixed order.
#include "kernels/attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <new>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/attention_weights.h"
#include "kernels/cpu/attention/multiplied_codes.h"
#include "kernels/cpu/attention/prefill_task.h"
#include "kernels/cpu/isa.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"
#include "kernels/piece_order.h"
#include "kernels/threads.h"

namespace kv {
namespace {

// Splits cost a merge, so only steps with few queries, which have no other parallelism, are split along the
// rows.
constexpr int64_t kMaxSplitQueries = 128;

// Steps of this many multiply-adds or more use all threads: 128 rows of 32 query heads of 128. On a quiet
// machine two threads pay from a quarter of that on, and save some microseconds; beside a busy neighbour they
// cost up to six times the step (results/xeon-2core/benchmarks).
constexpr int64_t kThreadedWork = 1 << 20;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kAllQueries = INT64_MAX;

// The cut of one problem into tasks, and the number of its queries that are in work at once. The cut depends
// on shapes alone, and so do the bits of the result.
struct Cut {
  int64_t queries, held, rows, splits;
  Cut(const HeadQueries& p, int64_t most_held) {
    queries = is_prefill(p) ? 0 : p.group * p.n;  // a prefill is cut otherwise: PrefillCut
    held = std::min(queries, most_held);
    rows = p.visible + p.n - 1;
    splits = queries <= kMaxSplitQueries ? ceil_div(rows, kSplitRows) : 1;
  }
  int64_t tiles() const { return ceil_div(rows, kTileRows); }
  int64_t tasks() const { return ceil_div(held, kQueryBlock) * splits; }
  // The index of a query's partial result among all that are held.
  int64_t place(int64_t split, int64_t query) const { return split * held + query % held; }
  int64_t split_rows() const { return splits > 1 ? kSplitRows : rows; }
};

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Allocates from the workspace; without a workspace it only adds up sizes.
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

}  // namespace

// A problem's share of the workspace: [splits, held] states, [splits, held, head_dim] sums, [held, rows]
// weights and [held, tiles] bases; of a prefill that comes in pieces, [group, panels, panel_state_floats]
// panels.
struct AttentionPartials {
  SoftmaxState* state;
  float* sum;
  float *weights, *bases;
  float* panels;
};

namespace {

AttentionPartials take_partials(Arena& arena, const HeadQueries& p, int64_t most_held, int head_dim) {
  const Cut cut(p, most_held);
  const int64_t panels = is_prefill(p) && most_held == kAllQueries ? p.group * cpu::panels_of(p.n) : 0;
  return {.state = arena.take<SoftmaxState>(cut.splits * cut.held),
          .sum = arena.take<float>(cut.splits * cut.held * head_dim),
          .weights = p.attention_weights ? arena.take<float>(cut.held * cut.rows) : nullptr,
          .bases = p.attention_weights ? arena.take<float>(cut.held * cut.tiles()) : nullptr,
          .panels = panels ? arena.take<float>(panels * cpu::panel_state_floats(head_dim)) : nullptr};
}

// Floats of one thread's scratch; 0 if none of the problems is a prefill.
int64_t prefill_scratch(std::span<const HeadQueries> problems, int head_dim) {
  const bool any = std::any_of(problems.begin(), problems.end(), is_prefill);
  return any ? cpu::prefill_scratch_floats(head_dim) : 0;
}

int64_t count_tasks(std::span<const HeadQueries> problems, int64_t most_held) {
  int64_t tasks = 0;
  for (const HeadQueries& p : problems) tasks += Cut(p, most_held).tasks();
  return tasks;
}

// The tasks of the part of `split` that lies in `piece`, for the queries in work from `first_query` on;
// `start` is where that part begins.
cpu::AttentionTask* plan_split(const HeadQueries& p, const Cut& cut, const AttentionPartials& partials,
                               int head_dim, const PiecewiseAttention::Piece& piece, int64_t split,
                               cpu::SpanCursor start, int64_t first_query, cpu::AttentionTask* next) {
  const int64_t begin = std::max(piece.begin, split * cut.split_rows());
  const int64_t end = std::min(piece.end, (split + 1) * cut.split_rows());
  const int64_t last_query = first_query + std::min(cut.held, cut.queries - first_query);
  for (int64_t first = first_query; first < last_query; first += kQueryBlock) {
    const int64_t count = std::min<int64_t>(kQueryBlock, last_query - first);
    // Skips rows that none of the block's queries sees (in a whole prefill about half of all).
    const int64_t last_token = first / p.n == (first + count - 1) / p.n ? (first + count - 1) % p.n : p.n - 1;
    const int64_t row_end = std::min(end, p.visible + last_token);
    const int64_t at = cut.place(split, first);
    const int64_t held = cut.place(0, first);
    new (next++)
        cpu::AttentionTask{.problem = &p,
                           .spans = piece.spans,
                           .first_query = first,
                           .queries = count,
                           .row_begin = begin,
                           .row_end = row_end,
                           .start = start,
                           .resume = begin > split * cut.split_rows(),
                           .state = partials.state + at,
                           .sum = partials.sum + at * head_dim,
                           .weights = partials.weights ? partials.weights + held * cut.rows : nullptr,
                           .bases = partials.bases ? partials.bases + held * cut.tiles() : nullptr,
                           .weights_stride = cut.rows,
                           .bases_stride = cut.tiles(),
                           .together = 1};
  }
  return next;
}

// Merges the splits of one query in their order and writes its output; returns the final state.
SoftmaxState merge_query(const HeadQueries& p, const Cut& cut, const AttentionPartials& partials,
                         int64_t query, int head_dim) {
  SoftmaxState state = partials.state[cut.place(0, query)];
  float* sum = partials.sum + cut.place(0, query) * head_dim;
  for (int64_t split = 1; split < cut.splits; ++split) {
    const int64_t at = cut.place(split, query);
    const float* other = partials.sum + at * head_dim;
    const MergeFactors f = merge(state, partials.state[at]);
    for (int x = 0; x < head_dim; ++x) sum[x] = sum[x] * f.a + other[x] * f.b;
  }
  float norm = 1.0f / state.sum;
  if (p.sink_logits) {
    const MergeFactors f = merge(state, {p.sink_logits[query / p.n], 1.0f});
    norm = f.a / state.sum;
  }
  float* out = p.out + query * head_dim;
  for (int x = 0; x < head_dim; ++x) out[x] = sum[x] * norm;
  return state;
}

// Multiply-adds of all problems, one for the scores and one for the values.
int64_t work(std::span<const HeadQueries> problems, int head_dim) {
  int64_t sum = 0;
  for (const HeadQueries& p : problems) sum += 2 * p.group * p.n * (p.visible + p.n / 2) * head_dim;
  return sum;
}

size_t workspace_bytes(std::span<const HeadQueries> problems, int head_dim, int64_t most_held) {
  Arena arena(nullptr);
  arena.take<cpu::AttentionTask>(count_tasks(problems, most_held));
  arena.take<AttentionPartials>(std::ssize(problems));
  arena.take<cpu::PrefillWork>(std::ssize(problems));
  for (const HeadQueries& p : problems) take_partials(arena, p, most_held, head_dim);
  arena.take<float>(omp_get_max_threads() * prefill_scratch(problems, head_dim));
  return arena.used();
}

}  // namespace

bool pieces_take_any_order(std::span<const HeadQueries> problems) {
  return std::ranges::none_of(
      problems, [](const HeadQueries& p) { return is_prefill(p) || p.group * p.n > kMaxSplitQueries; });
}

bool is_prefill(const HeadQueries& p) {
  return p.n >= kPrefillTokens && !p.attention_weights && !cpu::isa_is_scalar();
}

size_t attention_workspace_bytes(std::span<const HeadQueries> problems, int head_dim) {
  return workspace_bytes(problems, head_dim, kHeldQueries);
}

size_t PiecewiseAttention::workspace_bytes(std::span<const HeadQueries> problems, int head_dim) {
  return kv::workspace_bytes(problems, head_dim, kAllQueries);
}

PiecewiseAttention::PiecewiseAttention(std::span<const HeadQueries> problems, int head_dim,
                                       std::byte* workspace)
    : PiecewiseAttention(problems, head_dim, kAllQueries, workspace) {}

PiecewiseAttention::PiecewiseAttention(std::span<const HeadQueries> problems, int head_dim, int64_t most_held,
                                       std::byte* workspace)
    : problems_(problems), head_dim_(head_dim), most_held_(most_held) {
  Arena arena(workspace);
  tasks_ = arena.take<cpu::AttentionTask>(count_tasks(problems, most_held));
  partials_ = arena.take<AttentionPartials>(std::ssize(problems));
  prefill_works_ = arena.take<cpu::PrefillWork>(std::ssize(problems));
  for (size_t i = 0; i < problems.size(); ++i)
    new (partials_ + i) AttentionPartials(take_partials(arena, problems[i], most_held, head_dim));
  prefill_scratch_ = arena.take<float>(omp_get_max_threads() * prefill_scratch(problems, head_dim));
}

void PiecewiseAttention::work_on_queries_from(int64_t first) {
  first_query_ = first;
  planned_ = planned_prefill_ = 0;
}

void PiecewiseAttention::plan_prefill(const Piece& piece) {
  const HeadQueries& p = problems_[piece.problem];
  cpu::SpanCursor start;
  cpu::advance(piece.spans, start, 0);
  new (prefill_works_ + planned_prefill_++) cpu::PrefillWork{.problem = &p,
                                                             .spans = piece.spans,
                                                             .start = start,
                                                             .row_begin = piece.begin,
                                                             .row_end = piece.end,
                                                             .held = partials_[piece.problem].panels,
                                                             .cut = cpu::PrefillCut(p, problems_.size())};
}

void PiecewiseAttention::plan(const Piece& piece) {
  const HeadQueries& p = problems_[piece.problem];
  if (is_prefill(p)) return plan_prefill(piece);
  const Cut cut(p, most_held_);
  cpu::AttentionTask* next = tasks_ + planned_;
  cpu::SpanCursor start;
  cpu::advance(piece.spans, start, 0);
  for (int64_t row = piece.begin; row < piece.end;) {
    const int64_t split = row / cut.split_rows();
    next = plan_split(p, cut, partials_[piece.problem], head_dim_, piece, split, start, first_query_, next);
    const int64_t end = std::min(piece.end, (split + 1) * cut.split_rows());
    if (end < piece.end) cpu::advance(piece.spans, start, end - row);
    row = end;
  }
  planned_ = next - tasks_;
}

void PiecewiseAttention::sort_tasks() {
  const auto address = [](const cpu::AttentionTask& task) {
    const Side& side = task.spans[task.start.span].k;
    return side.data + task.start.row / side.encoding.group * side.stride;
  };
  std::sort(tasks_, tasks_ + planned_, [&](const cpu::AttentionTask& a, const cpu::AttentionTask& b) {
    return std::less<>()(address(a), address(b));
  });
}

void PiecewiseAttention::batch_tasks() {
  const auto end = [](const Side& side, int64_t rows) {
    return side.data + rows / side.encoding.group * side.stride;
  };
  const auto adjoin = [&](const cpu::AttentionTask& a, const cpu::AttentionTask& b) {
    const Span &x = a.spans[a.start.span], &y = b.spans[b.start.span];
    return x.rows < kTileRows && end(x.k, x.rows) == y.k.data;
  };
  const auto alike = [](const cpu::AttentionTask& a, const cpu::AttentionTask& b) {
    return a.row_begin == b.row_begin && a.row_end == b.row_end && a.queries == b.queries;
  };
  const int64_t threads = omp_get_max_threads();
  for (int64_t first = 0, count = 0; first < planned_; first += count) {
    cpu::AttentionTask* task = tasks_ + first;
    // Batches get smaller towards the end, so that threads end at about the same time.
    const int64_t fair = std::max<int64_t>(1, (planned_ - first) / (2 * threads));
    const int64_t most = std::min(fair, kQueryBlock / task->queries);
    count = 1;
    while (count < most && alike(*task, task[count]) && adjoin(task[count - 1], task[count])) ++count;
    task->together = static_cast<size_t>(count);
  }
}

void PiecewiseAttention::run_tasks(cpu::TaskQueue& queue) const {
  cpu::isa_is_scalar() ? cpu::run_tasks_scalar(queue, head_dim_) : cpu::run_tasks_simd(queue, head_dim_);
}

void PiecewiseAttention::run_prefill(cpu::PrefillQueue& queue) const {
  const int64_t scratch = cpu::prefill_scratch_floats(head_dim_);
  cpu::run_prefill_simd(queue, head_dim_, prefill_scratch_ + omp_get_thread_num() * scratch);
}

void PiecewiseAttention::merge_splits() const {
#pragma omp for schedule( \
    dynamic)  // problems may differ in length, and a long sequence's heads stand together
  for (size_t i = 0; i < problems_.size(); ++i) {
    const HeadQueries& p = problems_[i];
    const Cut cut(p, most_held_);
    const int64_t last = first_query_ + std::min(cut.held, cut.queries - first_query_);
    for (int64_t query = first_query_; query < last; ++query) {
      const SoftmaxState state = merge_query(p, cut, partials_[i], query, head_dim_);
      if (!p.attention_weights) continue;
      const int64_t rows = p.visible + query % p.n, at = cut.place(0, query);
      float* factors = partials_[i].bases + at * cut.tiles();
      cpu::probabilities(factors, state, ceil_div(rows, kTileRows), factors);
      cpu::add_weights(partials_[i].weights + at * cut.rows, factors, rows, p.attention_weights);
    }
  }
}

void PiecewiseAttention::run_planned(bool threads, bool merge) {
  sort_tasks();
  batch_tasks();
  cpu::TaskQueue queue{{tasks_, static_cast<size_t>(planned_)}};
  cpu::PrefillQueue prefill_queue({prefill_works_, static_cast<size_t>(planned_prefill_)});
#pragma omp parallel if (threads)
  {
    if (planned_prefill_ > 0) run_prefill(prefill_queue);
    run_tasks(queue);
    if (merge) {
#pragma omp barrier
      merge_splits();
    }
  }
}

void PiecewiseAttention::run(std::span<const Piece> pieces) {
  planned_ = planned_prefill_ = 0;
  for (const Piece& piece : pieces) plan(piece);
  run_planned(true, false);
}

void PiecewiseAttention::finish() {
#pragma omp parallel
  merge_splits();
}

void attend(std::span<const HeadQueries> problems, int head_dim, std::byte* workspace) {
  if (cpu::active_isa() == "none") return;  // then a step's time is the harness's own overhead
  PiecewiseAttention attention(problems, head_dim, kHeldQueries, workspace);
  int64_t most_queries = 1;
  for (const HeadQueries& p : problems) {
    if (!is_prefill(p)) most_queries = std::max(most_queries, p.group * p.n);
  }
  // Waking threads for a few microseconds of work costs more than the work.
  const bool threads = worth_threads(work(problems, head_dim), kThreadedWork);
  for (int64_t first = 0; first < most_queries; first += kHeldQueries) {
    attention.work_on_queries_from(first);
    for (size_t i = 0; i < problems.size(); ++i) {
      const HeadQueries& p = problems[i];
      if (first > 0 && is_prefill(p)) continue;  // done in the first round, which holds none of its queries
      attention.plan({.problem = i, .spans = p.spans, .begin = 0, .end = p.visible + p.n - 1});
    }
    attention.run_planned(threads, true);
  }
}

double attention_error_bound(const Encoding& k, const Encoding& v, Arithmetic arithmetic) {
  const double exact =
      std::max(descriptor_of(k.format).attention_error, descriptor_of(v.format).attention_error);
  return arithmetic == Arithmetic::kInt8 ? std::max(exact, kInt8AttentionError) : exact;
}

std::string int8_reason(const Encoding& e) {
  const FormatDescriptor& format = descriptor_of(e.format);
  if (format.elements == Elements::kCodes && format.scaling == Scaling::kBlock) return "";
  return "arithmetic=int8 needs codes with a scale a block (q8_0, q4_0), not " + format.name(e);
}

bool scores_codes(const Encoding& k, int head_dim) {
  return !cpu::isa_is_scalar() && cpu::multiplies_k_codes(k, head_dim);
}

bool weighs_codes(const Encoding& v, int head_dim) {
  return !cpu::isa_is_scalar() && cpu::multiplies_v_codes(v, head_dim);
}

std::string attention_kernel_name(const Encoding& k, const Encoding& v, int64_t tokens,
                                  Arithmetic arithmetic) {
  const std::string decode = cpu::multiplies_int8(arithmetic, tokens) ? "/int8/" : "/";
  const std::string path = is_prefill({.spans = {}, .n = tokens}) ? "/prefill/" : decode;
  return std::string(cpu::active_isa()) + path + encodings_name(k, v);
}

}  // namespace kv
