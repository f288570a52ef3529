#include "variants/storage/streamed_decode.h"

#include <omp.h>

#include <algorithm>
#include <exception>

namespace kv {
namespace {

// Rows in memory that a thread takes at once: few, since a piece may come meanwhile.
constexpr int64_t kResidentRows = 4 * kSplitRows;

size_t bytes_of(const HeadQueries& problem, int head_dim) {
  return (PiecewiseAttention::workspace_bytes({&problem, 1}, head_dim) + 63) / 64 * 64;
}

int64_t rows_of(const HeadQueries& problem) { return problem.visible + problem.n - 1; }

}  // namespace

void find_spans(const Piece& piece, const UnitLayout& unit, int heads, std::vector<Span>& out) {
  out.clear();
  for (int head = 0; head < heads; ++head) {
    std::array<const std::byte*, kPlanes> base{};
    for (int p = 0; p < kPlanes; ++p)
      base[p] = piece.base[p] ? piece.base[p] + head * piece.head_stride[p] : nullptr;
    out.push_back(make_span(unit, base, unit.bytes, piece.units * unit.rows));
  }
}

size_t StreamedDecode::workspace_bytes(std::span<const HeadQueries> problems, int head_dim) {
  size_t bytes = 0;
  for (const HeadQueries& problem : problems) bytes += bytes_of(problem, head_dim);
  return bytes;
}

StreamedDecode::StreamedDecode(std::span<const HeadQueries> problems, const UnitLayout& unit, int heads,
                               std::span<const int64_t> first_rows, int head_dim, std::byte* workspace)
    : problems_(problems), unit_(unit), heads_(heads) {
  heads_of_all_.reserve(problems.size());
  for (size_t i = 0; i < problems.size(); ++i) {
    heads_of_all_.push_back({.attention = PiecewiseAttention(problems.subspan(i, 1), head_dim, workspace),
                             .next_row = first_rows[i / static_cast<size_t>(heads)]});
    workspace += bytes_of(problems[i], head_dim);
  }
}

void StreamedDecode::run(const Stream& stream) {
  std::exception_ptr error;
#pragma omp parallel
  {
    if (omp_get_thread_num() == 0) {
      try {
        stream([&](size_t input, const Piece& piece) { visit(input, piece); },
               [&] {
                 Lock lock(mutex_);
                 const std::optional<Task> task = take();
                 if (task) work_on(*task, lock);
                 return task.has_value();
               });
      } catch (...) {
        error = std::current_exception();
      }
      const Lock lock(mutex_);
      all_came_ = true;
      news_.notify_all();
    }
    {
      Lock lock(mutex_);
      help(lock, [&] { return all_came_ && (error || is_all_done()); });
    }
#pragma omp barrier
    if (!error) {
#pragma omp for schedule(dynamic)
      for (size_t i = 0; i < heads_of_all_.size(); ++i) heads_of_all_[i].attention.finish();
    }
  }
  if (error) std::rethrow_exception(error);
}

// Returns when all of the piece is taken, and the one before it is done.
void StreamedDecode::visit(size_t input, const Piece& piece) {
  Lock lock(mutex_);
  Came& now = came_[pieces_ % came_.size()];
  const Came& before = came_[(pieces_ + 1) % came_.size()];
  now.input = input;
  now.begin = piece.first_unit * unit_.rows;
  now.end = now.begin + piece.units * unit_.rows;
  find_spans(piece, unit_, heads_, now.spans);
  now.taken.assign(static_cast<size_t>(heads_), false);
  now.left = heads_;
  ++pieces_;
  news_.notify_all();
  help(lock, [&] { return before.left == 0 && std::ranges::find(now.taken, false) == now.taken.end(); });
}

// Works on what is there until it is enough, and sleeps where there is nothing.
void StreamedDecode::help(Lock& lock, const std::function<bool()>& enough) {
  while (!enough()) {
    if (const std::optional<Task> task = take())
      work_on(*task, lock);
    else
      news_.wait(lock);
  }
}

// Pieces first: their place is needed for the next ones.
std::optional<StreamedDecode::Task> StreamedDecode::take() {
  for (size_t i = 0; i < came_.size(); ++i) {
    if (const auto task = take_of(came_[(pieces_ + i) % came_.size()])) return task;
  }
  for (size_t i = 0; i < heads_of_all_.size(); ++i) {
    const size_t problem = (next_resident_ + i) % heads_of_all_.size();
    if (heads_of_all_[problem].busy || !is_resident_left(problem)) continue;
    next_resident_ = problem + 1;
    return take_resident(problem);
  }
  return std::nullopt;
}

std::optional<StreamedDecode::Task> StreamedDecode::take_of(Came& came) {
  for (size_t head = 0; head < came.taken.size(); ++head) {
    const size_t problem = came.input * static_cast<size_t>(heads_) + head;
    if (came.taken[head] || heads_of_all_[problem].busy) continue;
    came.taken[head] = true;
    return Task{{problem, {&came.spans[head], 1}, came.begin, came.end}, &came};
  }
  return std::nullopt;
}

// Up to the end of a span that is the end of partial results, or to the last row.
std::optional<StreamedDecode::Task> StreamedDecode::take_resident(size_t problem) {
  Head& head = heads_of_all_[problem];
  const std::span<const Span> spans = problems_[problem].spans;
  size_t end = head.next_span;
  int64_t rows = 0;
  while (end < spans.size() && (rows < kResidentRows || rows % kSplitRows != 0)) rows += spans[end++].rows;
  const int64_t last = end < spans.size() ? head.next_row + rows : rows_of(problems_[problem]);
  const Task task{{problem, spans.subspan(head.next_span, end - head.next_span), head.next_row, last},
                  nullptr};
  head.next_span = end;
  head.next_row = last;
  return task;
}

bool StreamedDecode::is_resident_left(size_t problem) const {
  return heads_of_all_[problem].next_span < problems_[problem].spans.size();
}

bool StreamedDecode::is_all_done() const {
  if (working_ > 0 || came_[0].left > 0 || came_[1].left > 0) return false;
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (is_resident_left(i)) return false;
  }
  return true;
}

void StreamedDecode::work_on(const Task& task, Lock& lock) {
  Head& head = heads_of_all_[task.piece.problem];
  head.busy = true;
  ++working_;
  lock.unlock();
  PiecewiseAttention::Piece piece = task.piece;
  piece.problem = 0;  // the only one of its attention
  head.attention.run({&piece, 1});
  lock.lock();
  head.busy = false;
  --working_;
  if (task.came) --task.came->left;
  news_.notify_all();
}

}  // namespace kv
