// A whole model that decodes with a cell's cache: its context, its steps, and the tasks that time them.
#pragma once

#include <memory>
#include <optional>

#include "harness/measure/timed_tasks.h"
#include "harness/model/cached_model.h"
#include "harness/workload/context_rows.h"

namespace kv::experiments {

// Tokens before the timed steps, of which there are `steps` a repetition. Sequences are not forked: a fork of 128K tokens
// would be a copy of them, so the steps of a repetition go on where those of the last one ended, up to seq_len.
int64_t context_tokens(const measure::SweepPoint& point);

class ModelSteps {
 public:
  // Gives the cell's cache its context and its first step, and records what sequence 0's cache is given in `rows`.
  ModelSteps(measure::Cell& cell, const measure::SweepPoint& point, workload::ContextRows& rows);

  // The errors of the last step's outputs of sequence 0.
  verify::Errors errors(const workload::ContextRows& rows) const;
  // Decodes one token of each sequence.
  measure::StepTimes step();
  // Reads the context once more, as new sequences that are gone then: seconds to the first token's logits.
  double read_prompt() const;

  int64_t tokens() const { return decoder_->tokens(); }
  int64_t weight_bytes() const { return weight_bytes_; }    // of a step
  int64_t multiply_adds() const { return multiply_adds_; }  // of its projections

 private:
  // One sequence 0's layer of the verified step.
  struct Answer {
    std::vector<float> q, out;
  };
  void read_context(model::CachedModel& decoder) const;
  std::vector<int> ids(int64_t first, int64_t n) const;  // [sequences, n]
  model::CachedModel new_decoder() const;

  measure::Cell& cell_;
  const measure::SweepPoint& point_;
  std::optional<model::CachedModel> decoder_;
  std::vector<Answer> answers_;  // [layers]
  int64_t weight_bytes_ = 0, multiply_adds_ = 0;
};

// `steps` steps a repetition.
std::unique_ptr<measure::TimedTask> model_step_task(measure::Cell& cell, ModelSteps& model, int steps,
                                                    results::ResultsFolder& results);
// The prompt, once a repetition; its times go to `seconds`.
std::unique_ptr<measure::TimedTask> prompt_task(measure::Cell& cell, const ModelSteps& model,
                                                std::vector<double>& prompt_us,
                                                results::ResultsFolder& results);

}  // namespace kv::experiments
