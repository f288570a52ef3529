// Narrows a step's problems to the rows that the spec's selection chooses.
#include <algorithm>

#include "kernels/threads.h"
#include "variants/cache/attender.h"
#include "variants/core/scratch.h"

namespace kv {
namespace {

// `count` rows from row `first` of a span whose rows are units of their own.
Span part_of(const Span& span, int64_t first, int64_t count) {
  const auto moved = [&](Side side) {
    side.data += first * side.stride;
    if (side.meta) side.meta += first * side.meta_stride;
    return side;
  };
  return {moved(span.k), moved(span.v), count};
}

// Calls visit(span, first row in it, rows) for every piece of the ranges.
template <class Visit>
void for_each_piece(std::span<const Span> spans, std::span<const RowRange> ranges, Visit visit) {
  size_t at = 0;
  int64_t first = 0;
  for (const RowRange& range : ranges) {
    for (int64_t row = range.begin; row < range.end;) {
      while (row >= first + spans[at].rows) first += spans[at++].rows;
      const int64_t count = std::min(range.end, first + spans[at].rows) - row;
      visit(spans[at], row - first, count);
      row += count;
    }
  }
}

int64_t rows_of(std::span<const RowRange> ranges) {
  int64_t rows = 0;
  for (const RowRange& range : ranges) rows += range.end - range.begin;
  return rows;
}

}  // namespace

// Every input is one token (Appender::next_slice), and every read head a kv head (compatibility.cc refuses read=repeat).
void Attender::select(int layer, std::span<const StepInput> inputs) {
  selections_.clear();
  for (const StepInput& in : inputs) {
    for (int head = 0; head < stages_.shape.kv_heads; ++head)
      selections_.push_back(&sequences_.at(in.sequence).selection[stages_.index(layer, head)]);
  }
  find_candidates();
  const std::span scores(reinterpret_cast<float*>(candidates_.data()),
                         static_cast<size_t>(first_candidates_.back()));
  const std::span order(reinterpret_cast<int32_t*>(scores.data() + scores.size()), scores.size());
  if (stages_.selection.weighs) {
    std::fill(scores.begin(), scores.end(), 0.0f);
    for (size_t i = 0; i < problems_.size(); ++i)
      problems_[i].attention_weights = scores.data() + first_candidates_[i];
    stages_.storage->attend(problems_, nullptr);
    for (HeadQueries& p : problems_) p.attention_weights = nullptr;
  }
  const int64_t work = first_candidates_.back() * stages_.shape.head_dim;
#pragma omp parallel for schedule(dynamic, 1) if (worth_threads(work, kParallelElements))
  for (size_t i = 0; i < problems_.size(); ++i) {
    const HeadQueries& p = problems_[i];
    const auto first = static_cast<size_t>(first_candidates_[i]);
    const size_t count = static_cast<size_t>(first_candidates_[i + 1]) - first;
    selections_[i]->read = selections_[i]->chooser->choose(
        {p.q, p.group, p.spans, p.visible, scores.subspan(first, count), order.subspan(first, count)});
  }
  show_selected();
}

// Scratch for what each head chooses among.
void Attender::find_candidates() {
  first_candidates_.assign(1, 0);
  for (const HeadQueries& p : problems_)
    first_candidates_.push_back(first_candidates_.back() +
                                stages_.selection.candidates(stages_.spec.selection, p.visible));
  fit(stages_.memory, candidates_,
      static_cast<size_t>(first_candidates_.back()) * (sizeof(float) + sizeof(int32_t)));
}

// Makes each problem one of the chosen rows alone.
void Attender::show_selected() {
  while (selected_.size() < problems_.size())
    selected_.emplace_back(CountingAllocator<Span>(&stages_.memory));
  for (size_t i = 0; i < problems_.size(); ++i) {
    HeadQueries& p = problems_[i];
    const std::vector<RowRange>& read = selections_[i]->read;
    selected_[i].clear();
    for_each_piece(p.spans, read, [&](const Span& span, int64_t first, int64_t count) {
      selected_[i].push_back(part_of(span, first, count));
    });
    p.spans = selected_[i];
    p.visible = rows_of(read);
  }
}

}  // namespace kv
