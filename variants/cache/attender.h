// Attending: the views of a step, its queries, attention over them, and what the retention learns from it.
#pragma once

#include <span>
#include <vector>

#include "variants/cache/sequence.h"

namespace kv {

class Attender {
 public:
  Attender(Stages& stages, Sequences& sequences) : stages_(stages), sequences_(sequences) {}

  // As the functions of Cache.
  void view(int layer, std::span<const StepInput> inputs);
  void attend(int layer, std::span<const StepInput> inputs);
  // Rows have changed: the next attend() makes its views anew.
  void forget_views() { viewed_layer_ = -1; }

 private:
  void find_queries(int layer, std::span<const StepInput> inputs);
  void find_problems(int layer, std::span<const StepInput> inputs);
  void write_latent_outputs(std::span<const StepInput> inputs) const;
  void select(int layer, std::span<const StepInput> inputs);
  void find_streamed(int layer, std::span<const StepInput> inputs);
  void show_streamed(int layer, std::span<const StepInput> inputs);
  void find_candidates();
  void show_selected();
  void fetch_selected(int layer, std::span<const StepInput> inputs);
  bool find_scored(int layer, std::span<const StepInput> inputs);
  void show_rows(int layer, std::span<const StepInput> inputs);
  void compact_observed(int layer, std::span<const StepInput> inputs);
  void compact(int layer, SequenceId id);

  Stages& stages_;
  Sequences& sequences_;

  // Of the step in progress; kept between steps so that a steady state allocates nothing.
  int viewed_layer_ = -1;
  std::vector<std::span<const Span>> views_;  // [inputs, read_heads]
  std::vector<const Retention*> heads_;       // [inputs, read_heads]
  std::vector<const float*> queries_;         // [inputs]
  std::vector<HeadQueries> problems_;         // [inputs, read_heads]
  Block latent_outputs_;                      // of latent rows: [inputs] of [q_heads, n, head_dim]
  // Where the spec selects, [inputs, read_heads]:
  std::vector<HeadSelection*> selections_;
  std::vector<int64_t> first_candidates_;  // where each head's scratch begins
  std::vector<SpanList> selected_;         // what attention reads
  std::vector<int64_t> streamed_;          // [inputs] rows that come in pieces alone
  std::vector<PieceRows> wanted_;          // of those, what is chosen, head by head
  std::vector<Span> fetched_;              // [wanted_]
  Block candidates_;                       // f32 scores of all heads' candidates, then i32 as many
  std::vector<Retention*> scored_;         // [inputs, read_heads] null where the slice is not scored
};

}  // namespace kv
