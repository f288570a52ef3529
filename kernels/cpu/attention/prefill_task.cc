#include "kernels/cpu/attention/prefill_task.h"

#include <algorithm>

namespace kv::cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// With fewer tasks than this, threads that finish early would wait long for the others.
constexpr int64_t kFewTasks = 16;

// Rows times queries.
int64_t area(const PrefillWork& work) {
  const HeadQueries& p = *work.problem;
  return p.group * p.n * (work.row_end - work.row_begin);
}

}  // namespace

PrefillCut::PrefillCut(const HeadQueries& p, size_t problems) {
  head_blocks = static_cast<int>(ceil_div(p.group, kMaxPanels));
  heads = static_cast<int>(ceil_div(p.group, head_blocks));
  constexpr int64_t kPanels = 4;  // enough for the rows to be read, and decoded, for many queries at once
  int64_t panels = std::max<int64_t>(1, kPanels / heads);
  const auto blocks = [&] { return ceil_div(p.n, panels * kPanelTokens); };
  while (panels > 1 && static_cast<int64_t>(problems) * blocks() * head_blocks < kFewTasks) panels /= 2;
  tokens = panels * kPanelTokens;
  token_blocks = blocks();
}

PrefillTask PrefillWork::task(int64_t i) const {
  const int64_t block = cut.token_blocks - 1 - i / cut.head_blocks;
  PrefillTask t{.problem = problem, .spans = spans, .start = start, .row_begin = row_begin, .held = held};
  t.first_head = static_cast<int>(i % cut.head_blocks) * cut.heads;
  t.heads = std::min(cut.heads, problem->group - t.first_head);
  t.first_token = block * cut.tokens;
  t.tokens = std::min(cut.tokens, problem->n - t.first_token);
  const int64_t seen = problem->visible + t.first_token + t.tokens - 1;
  t.row_end = std::min(row_end, seen);
  t.finish = row_end >= seen;
  return t;
}

PrefillQueue::PrefillQueue(std::span<PrefillWork> works) : works_(works) {
  std::sort(works.begin(), works.end(), [](const PrefillWork& a, const PrefillWork& b) {
    return area(a) != area(b) ? area(a) > area(b) : a.problem < b.problem;
  });
  for (PrefillWork& work : works) {
    work.tasks_before = tasks_;
    tasks_ += work.cut.tasks();
  }
}

bool PrefillQueue::claim(PrefillTask& task) {
  const int64_t i = claimed_.fetch_add(1, std::memory_order_relaxed);
  if (i >= tasks_) return false;
  const auto after = std::upper_bound(works_.begin(), works_.end(), i, [](int64_t wanted, const auto& work) {
    return wanted < work.tasks_before;
  });
  const PrefillWork& work = *(after - 1);
  task = work.task(i - work.tasks_before);
  return true;
}

}  // namespace kv::cpu
