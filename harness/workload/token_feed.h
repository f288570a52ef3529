// A workload's tokens, laid out so that a timed step only passes pointers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/workload/workload.h"
#include "variants/cache/cache.h"

namespace kv::workload {

// Feeds every cache sequence i the workload's sequence i: from its first token on, or in a ragged batch from token
// offsets[i] on, which then counts as token 0.
class TokenFeed {
 public:
  TokenFeed(const Workload& workload, int sequences, std::vector<int64_t> offsets = {});

  // Prepares tokens [first, first + n) of every sequence and layer for inputs().
  void load(int64_t first, int64_t n);
  // One loaded token of all sequences as a step of one layer. Outputs go to out(). Valid until the next load().
  std::span<const StepInput> inputs(int layer, int64_t token, std::span<const SequenceId> ids);
  const float* out(int layer, int sequence) const;  // [q_heads, head_dim] of the last step
  const float* q(int layer, int sequence, int64_t token) const;

  const Workload& workload() const { return workload_; }
  int sequences() const { return sequences_; }

 private:
  size_t slot(int layer, int sequence, int64_t token) const;

  const Workload& workload_;
  int sequences_;
  std::vector<int64_t> offsets_;  // [sequences]
  int64_t first_ = 0, count_ = 0;
  std::vector<float> q_, k_, v_;  // [tokens, layers, sequences, heads, head_dim]
  std::vector<float> out_;        // [layers, sequences, q_heads, head_dim]
  std::vector<StepInput> inputs_;
};

// Prefills sequences ids[i] with tokens [first, last) of the workload's sequence first_sequence + i and discards the
// outputs; `chunk` tokens a step unless the retention cuts prompts.
void prefill(Cache& cache, const Workload& workload, std::span<const SequenceId> ids, int64_t first,
             int64_t last, int first_sequence = 0, int64_t chunk = 1024);

}  // namespace kv::workload
