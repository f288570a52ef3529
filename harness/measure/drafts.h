// Speculative decoding as a cache sees it (Leviathan et al. 2023, arXiv:2211.17192): a step stores and attends to a
// sequence's last token and `drafts` proposed ones at once, and the cache is truncated to those that the model accepts. Each
// proposal is accepted with the same probability if those before it were, drawn from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/timed_tasks.h"

namespace kv::measure {

struct DraftSettings {
  int64_t drafts = 0;   // proposed tokens of a step; 0: no such steps
  double accept = 0.0;  // probability, 0 to 1
  uint64_t seed = 1;
  int64_t first = 0, end = 0;  // tokens that steps store lie in [first, end)
};

class DraftSteps {
 public:
  // As many steps as have room for every sequence.
  DraftSteps(const workload::Workload& workload, int sequences, const DraftSettings& settings);

  size_t count() const { return steps_.size(); }
  // Tokens that stay, mean of all steps and sequences: 1 and those accepted.
  double mean_stays() const;
  // How many tokens sequence i has after all steps.
  int64_t tokens_after(int sequence) const { return tokens_[static_cast<size_t>(sequence)]; }
  // Of step `step` on sequences that have done those before: append, attention and truncation. Seconds. Throws
  // std::invalid_argument with the cache's reason where a truncation is refused.
  double run(Cache& cache, size_t step, std::span<const SequenceId> ids);

 private:
  struct Step {
    std::vector<int64_t> keeps;            // [sequences] tokens that stay in the cache
    std::vector<std::vector<float>> rows;  // [layers * sequences]: q, k, v of the step's tokens
  };
  void fill(const workload::Workload& workload, int64_t stays, int64_t first, int sequence, int layer,
            std::vector<float>& rows) const;
  std::vector<StepInput> inputs(const Step& step, int layer, std::span<const SequenceId> ids);

  const DraftSettings settings_;
  const workload::WorkloadShape shape_;
  const int sequences_;
  std::vector<int64_t> tokens_;  // [sequences]
  int64_t stays_ = 0;            // of all steps and sequences
  std::vector<Step> steps_;
  std::vector<float> out_;
};

// Whether drafts leave what plain steps do: forks of the cell's sequences draft and truncate from `first` on, get the tokens
// that are left, and the outputs of their last token are compared bit for bit with those of the feed's last plain step at
// end + 1 tokens. Empty, or why a truncation is refused. Throws std::logic_error where bits differ.
std::string check_drafts(Cell& cell, workload::TokenFeed& feed, DraftSteps& drafts, int64_t end);

// The steps of a repetition, on forks of the cell's sequences. The cell's columns `draft_*` by summarise_drafts().
std::unique_ptr<TimedTask> draft_task(Cell& cell, DraftSteps& drafts, results::ResultsFolder& results);
void summarise_drafts(Cell& cell, const DraftSteps& drafts);

}  // namespace kv::measure
