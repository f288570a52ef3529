// A step's attention, from views to the retention's observations.
#include "variants/cache/attender.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "kernels/threads.h"
#include "variants/cache/prefill.h"
#include "variants/core/scratch.h"

namespace kv {
namespace {

// Rows that this step must stream. Empty lists if there are none.
StreamedRows streamed_rows(const Stages& stages, int layer, std::span<const StepInput> inputs) {
  const auto rows_of = [&](const StepInput& in) {
    return stages.placement->streamed_units(in.sequence, layer) * stages.unit.rows;
  };
  StreamedRows streamed{layer, (layer + 1) % stages.shape.layers, {}, {}};
  if (std::none_of(inputs.begin(), inputs.end(), [&](const StepInput& in) { return rows_of(in) > 0; }))
    return streamed;
  for (const StepInput& in : inputs) {
    streamed.sequences.push_back(in.sequence);
    streamed.rows.push_back(rows_of(in));
  }
  return streamed;
}

void move_row(const Stages& stages, const UnitAddress& from, const UnitAddress& to) {
  for (int p = 0; p < kPlanes; ++p) {
    const auto bytes = static_cast<size_t>(stages.unit.bytes[p]);
    if (bytes > 0) stages.memory.copy(to.plane[p], from.plane[p], bytes);
  }
}

}  // namespace

// True for a prompt whose queries read its rows as they came.
bool Attender::reads_own_rows(int layer, const StepInput& in) const {
  return in.n > 1 && prefills_full(stages_.spec) && sequences_.at(in.sequence).tokens[layer] == in.n;
}

// Makes the views of such prompts show those rows.
void Attender::view_own_rows(int layer, std::span<const StepInput> inputs) {
  const int64_t d = stages_.shape.head_dim, row_bytes = d * static_cast<int64_t>(sizeof(float));
  const int heads = stages_.read_heads(), repeats = stages_.placement->repeats();
  own_rows_.resize(views_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const StepInput& in = inputs[i];
    if (!reads_own_rows(layer, in)) continue;
    for (int head = 0; head < heads; ++head) {
      const int64_t first = head / repeats * in.n * d;
      const auto side = [&](const float* rows) {
        return Side{.data = reinterpret_cast<const std::byte*>(rows + first), .stride = row_bytes};
      };
      const size_t at = i * static_cast<size_t>(heads) + static_cast<size_t>(head);
      own_rows_[at] = {.k = side(in.k), .v = side(stages_.shape.is_latent() ? in.k : in.v), .rows = in.n};
      views_[at] = {&own_rows_[at], 1};
    }
  }
}

void Attender::view(int layer, std::span<const StepInput> inputs) {
  views_.clear();
  heads_.clear();
  for (const StepInput& in : inputs) {
    const Sequence& s = sequences_.at(in.sequence);
    sequences_.view(in.sequence, layer);
    for (int head = 0; head < stages_.read_heads(); ++head) {
      views_.push_back(reads_own_rows(layer, in) ? std::span<const Span>()
                                                 : sequences_.spans(in.sequence, layer, head));
      heads_.push_back(s.retention[stages_.index(layer, head / stages_.placement->repeats())].get());
    }
  }
  stages_.storage->view(views_, heads_);
  view_own_rows(layer, inputs);
  viewed_layer_ = layer;
}

void Attender::attend(int layer, std::span<const StepInput> inputs) {
  const bool scored = find_scored(layer, inputs);
  if (!scored && !inputs.front().out) {
    show_rows(layer, inputs);
    return compact_observed(layer, inputs);
  }
  if (viewed_layer_ != layer) view(layer, inputs);
  find_queries(layer, inputs);
  find_problems(layer, inputs);
  if (!stages_.selection.reads_all()) select(layer, inputs);
  if (scored) stages_.storage->accumulate_weights(problems_, scored_);
  const StreamedRows streamed = streamed_rows(stages_, layer, inputs);
  stages_.storage->attend(problems_, streamed.rows.empty() ? nullptr : &streamed);
  if (stages_.shape.is_latent()) write_latent_outputs(inputs);
  for (const StepInput& in : inputs) {
    if (stages_.hadamard && !reads_own_rows(layer, in)) stages_.hadamard->restore({&in, 1});
  }
  if (scored) stages_.storage->observe_weights(problems_, scored_);
  show_rows(layer, inputs);
  compact_observed(layer, inputs);
}

// Each input's q into queries_, rotated where the cache does that. A step's tokens are the newest that are
// kept.
void Attender::find_queries(int layer, std::span<const StepInput> inputs) {
  queries_.clear();
  for (const StepInput& in : inputs) {
    if (in.n > sequences_.at(in.sequence).slice[layer].tokens)
      throw std::logic_error("these tokens attend slice by slice; use step()");
    queries_.push_back(in.q);
  }
  if (stages_.hadamard) queries_ = stages_.hadamard->queries(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (reads_own_rows(layer, inputs[i])) queries_[i] = inputs[i].q;  // such rows are not transformed
  }
  if (!stages_.rotated) return;
  std::vector<RotatedRows::Queries> steps;
  for (const StepInput& in : inputs)
    steps.push_back({in.q, in.n, sequences_.policy(in.sequence, layer, 0).slots() - in.n});
  queries_ = stages_.rotated->rotate_queries(steps, stages_.shape.q_heads);
}

// Kernels give outputs as wide as rows; those of latent rows are cut to the value's width afterwards.
void Attender::find_problems(int layer, std::span<const StepInput> inputs) {
  problems_.clear();
  float* outputs = nullptr;
  if (stages_.shape.is_latent()) {
    int64_t values = 0;
    for (const StepInput& in : inputs) values += stages_.shape.q_heads * in.n * stages_.shape.head_dim;
    outputs = reinterpret_cast<float*>(
        fit(stages_.memory, latent_outputs_, static_cast<size_t>(values) * sizeof(float)));
  }
  int64_t first = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const StepInput& in = inputs[i];
    const Sequence& s = sequences_.at(in.sequence);
    const int repeats = stages_.placement->repeats(), group = stages_.shape.group() / repeats;
    const int64_t rows = int64_t{group} * in.n * stages_.shape.head_dim;
    float* out = outputs ? outputs + first : in.out;
    first += rows * stages_.read_heads();
    for (int head = 0; head < stages_.read_heads(); ++head) {
      problems_.push_back(
          {.q = queries_[i] + head * rows,
           .out = out + head * rows,
           .spans = views_[problems_.size()],
           .group = group,
           .n = in.n,
           .visible = s.retention[stages_.index(layer, head / repeats)]->slots() - in.n + 1,
           .sink_logits = in.sink_logits ? in.sink_logits + head * group : nullptr,
           .score_cap = in.score_cap,
           .arithmetic = reads_own_rows(layer, in) ? Arithmetic::kExact : stages_.codec.arithmetic});
    }
  }
}

void Attender::write_latent_outputs(std::span<const StepInput> inputs) const {
  const int64_t d = stages_.shape.head_dim, width = stages_.shape.out_dim();
  const float* from = reinterpret_cast<const float*>(latent_outputs_.data());
  for (const StepInput& in : inputs) {
    for (int64_t row = 0; row < stages_.shape.q_heads * in.n; ++row, from += d)
      std::copy_n(from, width, in.out + row * width);
  }
}

// Collects the policies of scored slices in scored_. Returns true if there is any.
bool Attender::find_scored(int layer, std::span<const StepInput> inputs) {
  scored_.clear();
  bool any = false;
  for (const StepInput& in : inputs) {
    const Sequence& s = sequences_.at(in.sequence);
    const bool scored = s.slice[layer].scored;
    const int repeats = stages_.placement->repeats();
    for (int head = 0; head < stages_.read_heads(); ++head)
      scored_.push_back(scored ? s.retention[stages_.index(layer, head / repeats)].get() : nullptr);
    any |= scored;
  }
  return any;
}

void Attender::show_rows(int layer, std::span<const StepInput> inputs) {
  const CacheShape& s = stages_.shape;
  for (const StepInput& in : inputs) {
    if (!sequences_.at(in.sequence).slice[layer].shown) continue;
    const int64_t work = in.n * s.kv_heads * s.group() * s.head_dim;
#pragma omp parallel for schedule(dynamic, 1) if (worth_threads(work, kParallelElements))
    for (int head = 0; head < s.kv_heads; ++head) {
      const int64_t at = int64_t{head} * in.n * s.head_dim;
      sequences_.policy(in.sequence, layer, head)
          .show({.n = in.n,
                 .head_dim = s.head_dim,
                 .value_dim = s.out_dim(),
                 .group = s.group(),
                 .q = in.q + at * s.group(),
                 .k = in.k + at,
                 .v = s.is_latent() ? in.k : in.v + at});
    }
  }
}

void Attender::compact_observed(int layer, std::span<const StepInput> inputs) {
  for (const StepInput& in : inputs) {
    Slice& slice = sequences_.at(in.sequence).slice[layer];
    if (!slice.scored && !slice.shown) continue;
    slice.scored = slice.shown = false;  // attending again must not count twice
    compact(layer, in.sequence);
  }
}

// Moves the rows that the retention keeps to the front and gives back what lies behind them.
void Attender::compact(int layer, SequenceId id) {
  const Sequence& s = sequences_.at(id);
  const std::span heads(s.retention.data() + stages_.index(layer, 0),
                        static_cast<size_t>(stages_.shape.kv_heads));
  if (stages_.retention.settle) stages_.retention.settle(heads);
  std::vector<int64_t> before;
  for (int head = 0; head < stages_.shape.kv_heads; ++head) {
    before.push_back(sequences_.policy(id, layer, head).slots());
    const std::vector<int64_t> keep = sequences_.policy(id, layer, head).compact();
    for (int64_t to = 0; to < static_cast<int64_t>(keep.size()); ++to) {
      if (keep[to] != to)
        move_row(stages_, stages_.at(id, layer, head, keep[to]), stages_.at(id, layer, head, to));
    }
  }
  for (int head = 0; head < stages_.placed_heads(); ++head) {
    const int64_t after = sequences_.policy(id, layer, head).slots();
    if (after == before[static_cast<size_t>(head)]) continue;
    forget_views();
    stages_.placement->trim(id, stages_.place(layer, head).layer, after);
  }
}

}  // namespace kv
