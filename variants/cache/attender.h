// Attending: the views of a step, its queries, attention over them, and the retention's observations.
#pragma once

#include <span>
#include <vector>

#include "variants/cache/sequence.h"

namespace kv {

class Attender {
 public:
  Attender(Stages& stages, Sequences& sequences) : stages_(stages), sequences_(sequences) {}

  // The functions of Cache.
  void view(int layer, std::span<const StepInput> inputs);
  void attend(int layer, std::span<const StepInput> inputs);
  // Rows have changed: the next attend() makes its views anew.
  void forget_views() { viewed_layer_ = -1; }

 private:
  bool reads_own_rows(int layer, const StepInput& in) const;
  void view_own_rows(int layer, std::span<const StepInput> inputs);
  void find_queries(int layer, std::span<const StepInput> inputs);
  void find_problems(int layer, std::span<const StepInput> inputs);
  void write_latent_outputs(std::span<const StepInput> inputs) const;
  void select(int layer, std::span<const StepInput> inputs);
  void find_candidates();
  void show_selected();
  bool find_scored(int layer, std::span<const StepInput> inputs);
  void show_rows(int layer, std::span<const StepInput> inputs);
  void compact_observed(int layer, std::span<const StepInput> inputs);
  void compact(int layer, SequenceId id);

  Stages& stages_;
  Sequences& sequences_;

  // The step in progress; kept between steps so that a steady state allocates nothing.
  int viewed_layer_ = -1;
  std::vector<std::span<const Span>> views_;  // [inputs, read_heads]
  std::vector<const Retention*> heads_;       // [inputs, read_heads]
  std::vector<Span> own_rows_;         // prefill=full: [inputs, read_heads] a prompt's rows as they came
  std::vector<const float*> queries_;  // [inputs]
  std::vector<HeadQueries> problems_;  // [inputs, read_heads]
  Block latent_outputs_;               // latent rows alone: [inputs] of [q_heads, n, head_dim]
  // [inputs, read_heads], for specs that select:
  std::vector<HeadSelection*> selections_;
  std::vector<int64_t> first_candidates_;  // the begin of each head's scratch
  std::vector<SpanList> selected_;         // rows that attention reads
  Block candidates_;                       // f32 scores of all heads' candidates, then i32 as many
  std::vector<Retention*> scored_;         // [inputs, read_heads] null where the slice is not scored
};

}  // namespace kv
