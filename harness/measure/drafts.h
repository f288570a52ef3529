// Speculative decoding as a cache sees it (Leviathan et al. 2023, arXiv:2211.17192). A step stores and attends to a
// sequence's last token and `drafts` proposed tokens at once; the cache is then truncated to the accepted ones. Each
// proposal is accepted with the same probability if all before it were; a seed draws.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/timed_tasks.h"

namespace kv::measure {

struct DraftSettings {
  int64_t drafts = 0;   // proposed tokens a step; 0: no such steps
  double accept = 0.0;  // probability, 0 to 1
  uint64_t seed = 1;
  int64_t first = 0, end = 0;  // the steps' tokens lie in [first, end)
};

class DraftSteps {
 public:
  // Plans steps until a sequence has no room left.
  DraftSteps(const workload::Workload& workload, int sequences, const DraftSettings& settings);

  size_t count() const { return steps_.size(); }
  // Mean number of tokens that a step keeps, over all steps and sequences: 1 and the accepted ones.
  double mean_stays() const;
  // Tokens of sequence i after all steps.
  int64_t tokens_after(int sequence) const { return tokens_[static_cast<size_t>(sequence)]; }
  // Runs append, attention and truncation of step `step` on sequences that have done the earlier ones. Returns
  // seconds. Throws std::invalid_argument with the cache's reason if it refuses a truncation.
  double run(Cache& cache, size_t step, std::span<const SequenceId> ids);

  Samples samples;  // whole steps

 private:
  struct Step {
    std::vector<int64_t> keeps;            // [sequences] tokens that remain in the cache
    std::vector<std::vector<float>> rows;  // [layers * sequences]: q, k, v of the step's tokens
  };
  void fill(const workload::Workload& workload, int64_t stays, int64_t first, int sequence, int layer,
            std::vector<float>& rows) const;
  std::vector<StepInput> inputs(const Step& step, int layer, std::span<const SequenceId> ids);

  const DraftSettings settings_;
  const workload::WorkloadShape shape_;
  const int sequences_;
  std::vector<int64_t> tokens_;  // [sequences]
  int64_t stays_ = 0;            // over all steps and sequences
  std::vector<Step> steps_;
  std::vector<float> out_;
};

// Checks that drafts leave the same cache as plain steps. Forks of the cell's sequences draft and truncate from
// `first` on and get the remaining tokens; the outputs of their last token must equal, bit for bit, those of the
// feed's last plain step at end + 1 tokens. Returns the reason of a refused truncation, else empty. Throws
// std::logic_error if bits differ.
std::string check_drafts(Cell& cell, workload::TokenFeed& feed, DraftSteps& drafts, int64_t end);

// Times a repetition's steps on forks of the cell's sequences. summarise_drafts() fills the columns `draft_*`.
std::unique_ptr<TimedTask> draft_task(Cell& cell, DraftSteps& drafts, results::ResultsFolder& results);
void summarise_drafts(Cell& cell, const DraftSteps& drafts);

}  // namespace kv::measure
