// Narrows a step's problems to the rows that the spec's selection chooses.
#include <algorithm>

#include "kernels/threads.h"
#include "variants/cache/attender.h"
#include "variants/core/scratch.h"
#include "variants/storage/streamed_decode.h"

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

// Calls visit(span, first row in it, rows) for every piece of the ranges. The spans begin with row `first`, and what the
// ranges have before it is left out.
template <class Visit>
void for_each_piece(std::span<const Span> spans, int64_t first, std::span<const RowRange> ranges,
                    Visit visit) {
  const int64_t begin = first;
  size_t at = 0;
  for (const RowRange& range : ranges) {
    for (int64_t row = std::max(begin, range.begin); row < range.end;) {
      while (row >= first + spans[at].rows) first += spans[at++].rows;
      const int64_t count = std::min(range.end, first + spans[at].rows) - row;
      visit(spans[at], row - first, count);
      row += count;
    }
  }
}

int64_t rows_before(std::span<const RowRange> ranges, int64_t end) {
  int64_t rows = 0;
  for (const RowRange& range : ranges) rows += std::max<int64_t>(0, std::min(end, range.end) - range.begin);
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
  find_streamed(layer, inputs);
  show_streamed(layer, inputs);
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
  fetch_selected(layer, inputs);
  show_selected();
}

void Attender::find_streamed(int layer, std::span<const StepInput> inputs) {
  streamed_.clear();
  for (const StepInput& in : inputs)
    streamed_.push_back(streamed_units(*stages_.placement, in.sequence, layer) * stages_.unit.rows);
}

// Shows the oldest rows to choices that have not seen them: the sequence came from a file, or was long before its first
// step.
void Attender::show_streamed(int layer, std::span<const StepInput> inputs) {
  Placement& placement = *stages_.placement;
  const auto heads = static_cast<size_t>(stages_.shape.kv_heads);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::span of_input = std::span(selections_).subspan(i * heads, heads);
    int64_t known = INT64_MAX;
    for (const HeadSelection* s : of_input) known = std::min(known, s->chooser->known_rows());
    if (known >= streamed_[i]) continue;
    std::vector<Span> spans;
    const int sequence = inputs[i].sequence;
    placement.tiers()->stream(
        layer, {&sequence, 1},
        [&](size_t, const Piece& piece) {
          find_spans(piece, stages_.shape.kv_heads, spans);
#pragma omp parallel for schedule(dynamic, 1)
          for (size_t head = 0; head < heads; ++head)
            of_input[head]->chooser->show({&spans[head], 1}, piece.first_unit + piece.units);
        },
        nullptr, {.first = known / placement.run_units()});
  }
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

// Fetches the chosen rows that are streamed, of all heads at once: more requests in flight are faster.
void Attender::fetch_selected(int layer, std::span<const StepInput> inputs) {
  wanted_.clear();
  for (size_t i = 0; i < problems_.size(); ++i) {
    const auto heads = static_cast<size_t>(stages_.shape.kv_heads);
    for (const RowRange& range : selections_[i]->read) {
      const int64_t end = std::min(range.end, streamed_[i / heads]);
      for (int64_t row = range.begin; row < end; row = wanted_.back().end) {
        const int64_t piece = stages_.placement->run_units();
        wanted_.push_back({inputs[i / heads].sequence, static_cast<int>(i % heads), row,
                           std::min(end, (row / piece + 1) * piece)});
      }
    }
  }
  if (!wanted_.empty()) stages_.placement->tiers()->fetch(layer, wanted_, fetched_);
}

// Makes each problem one of the chosen rows alone.
void Attender::show_selected() {
  while (selected_.size() < problems_.size())
    selected_.emplace_back(WorkspaceAllocator<Span>(stages_.memory));
  size_t next = 0;  // index into fetched_
  for (size_t i = 0; i < problems_.size(); ++i) {
    HeadQueries& p = problems_[i];
    const std::vector<RowRange>& read = selections_[i]->read;
    selected_[i].clear();
    const int64_t streamed = streamed_[i / static_cast<size_t>(stages_.shape.kv_heads)];
    for (int64_t left = rows_before(read, streamed); left > 0; left -= fetched_[next++].rows)
      selected_[i].push_back(fetched_[next]);
    for_each_piece(p.spans, streamed, read, [&](const Span& span, int64_t first, int64_t count) {
      selected_[i].push_back(part_of(span, first, count));
    });
    p.spans = selected_[i];
    p.visible = rows_before(read, INT64_MAX);
  }
}

}  // namespace kv
