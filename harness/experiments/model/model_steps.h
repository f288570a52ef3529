// A whole model that decodes with a cell's cache or without any: its context and its steps.
#pragma once

#include <memory>

#include "harness/config/key.h"
#include "harness/measure/cell.h"
#include "harness/model/decoder.h"
#include "harness/verify/state_check.h"
#include "harness/workload/recorded_workload.h"

namespace kv::experiments {

inline const config::Key<std::string> kContextKey{
    "context", config::SharedTable::kMeasure, "prefill", config::choice({"prefill", "synthetic"}),
    "context before the timed steps: read by the model, or synthetic rows"};

// Tokens before the timed steps; each repetition has `steps`. Sequences are not forked, since a fork of 128K tokens
// would copy them: each repetition's steps continue after the last one's, up to seq_len.
int64_t context_tokens(const measure::SweepPoint& point);

class ModelSteps {
 public:
  // Gives the cell's cache its context and its first step, and records the inputs of sequence 0's cache in `rows`.
  // Without a cache the context is read, and the rows are those that the first step recomputes.
  ModelSteps(measure::Cell& cell, const measure::SweepPoint& point, workload::ContextRows& rows);

  // Errors of the last step's outputs of sequence 0.
  verify::Errors errors(const workload::ContextRows& rows) const;
  // Decodes one token of each sequence.
  measure::StepTimes step();
  // Reads the context again as new sequences, which are then dropped. Returns seconds to the first token's logits.
  double read_prompt() const;

  // Fills the cell's byte columns; throws std::logic_error if they disagree with the closed form.
  void account() const;

  int64_t tokens() const { return decoder_->tokens(); }
  int64_t weight_bytes() const { return weight_bytes_; }    // a step's
  int64_t multiply_adds() const { return multiply_adds_; }  // a step's projections

 private:
  // The outputs of one layer of sequence 0 in the verified step.
  struct Answer {
    int layer = 0;
    std::vector<float> q, out;
  };
  void give_context(workload::ContextRows& rows);
  void give_synthetic_context(workload::ContextRows& rows);
  void observe_verified_step(workload::ContextRows& rows);
  void read_context(model::Decoder& decoder) const;
  void account_uncached() const;
  std::vector<int> ids(int64_t first, int64_t n) const;  // [sequences, n]
  std::unique_ptr<model::Decoder> new_decoder() const;

  measure::Cell& cell_;
  const measure::SweepPoint& point_;
  std::unique_ptr<model::Decoder> decoder_;
  std::vector<Answer> answers_;  // [layers that keep rows]
  verify::StateCheck states_;    // for all other layers
  int64_t weight_bytes_ = 0, multiply_adds_ = 0;
};

// Upper bound on the bytes of a cell without a cache: its ids, a step's activations, and the rows that verify its
// first step.
int64_t uncached_bytes(const measure::SweepPoint& point);

}  // namespace kv::experiments
