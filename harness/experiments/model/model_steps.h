// A whole model that decodes with a cell's cache, or without any: its context, its steps, and the tasks that time them.
#pragma once

#include <memory>

#include "harness/measure/timed_tasks.h"
#include "harness/model/decoder.h"
#include "harness/verify/state_check.h"
#include "harness/workload/context_rows.h"

namespace kv::experiments {

// Tokens before the timed steps, of which there are `steps` a repetition. Sequences are not forked: a fork of 128K tokens
// would be a copy of them, so the steps of a repetition go on where those of the last one ended, up to seq_len.
int64_t context_tokens(const measure::SweepPoint& point);

class ModelSteps {
 public:
  // Gives the cell's cache its context and its first step, and records what sequence 0's cache is given in `rows`.
  // Without a cache the context is read, and the rows are those that the first step computes again.
  ModelSteps(measure::Cell& cell, const measure::SweepPoint& point, workload::ContextRows& rows);

  // The errors of the last step's outputs of sequence 0.
  verify::Errors errors(const workload::ContextRows& rows) const;
  // Decodes one token of each sequence.
  measure::StepTimes step();
  // Reads the context once more, as new sequences that are gone then: seconds to the first token's logits.
  double read_prompt() const;

  // Fills the cell's byte columns, and throws std::logic_error if they do not agree with the closed form.
  void account() const;

  int64_t tokens() const { return decoder_->tokens(); }
  int64_t weight_bytes() const { return weight_bytes_; }    // of a step
  int64_t multiply_adds() const { return multiply_adds_; }  // of its projections

 private:
  // One sequence 0's layer of the verified step.
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
  verify::StateCheck states_;    // of the others
  int64_t weight_bytes_ = 0, multiply_adds_ = 0;
};

// Bytes that a cell without a cache needs at most: its ids, what all tokens of a step are multiplied with at a time, and
// the rows that its first step is verified with.
int64_t uncached_bytes(const measure::SweepPoint& point);

// `steps` steps a repetition.
std::unique_ptr<measure::TimedTask> model_step_task(measure::Cell& cell, ModelSteps& model, int steps,
                                                    results::ResultsFolder& results);
// The prompt, once a repetition; its times go to `seconds`.
std::unique_ptr<measure::TimedTask> prompt_task(measure::Cell& cell, const ModelSteps& model,
                                                std::vector<double>& prompt_us,
                                                results::ResultsFolder& results);

}  // namespace kv::experiments
