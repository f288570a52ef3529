// The rows of one layer's step as caches take them: a model has heads outermost, a cache sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/model.h"
#include "variants/cache/cache.h"

namespace kv::model {

// A sequence's tokens in a step.
struct SequenceTokens {
  SequenceId sequence;
  int64_t n;
};
// A step of n tokens of each sequence.
std::vector<SequenceTokens> step_of(std::span<const SequenceId> ids, int64_t n);

class StepRows {
 public:
  // The inputs of a step's sequences in a layer: q [q_heads, rows, head_dim], of whose rows the first are those of these
  // sequences, one after another; k and v likewise, as Model::Attention gives them. They and their outputs are there until
  // the next layer's are laid out.
  std::span<StepInput> lay_out(const ModelConfig& config, int layer, std::span<const SequenceTokens> step,
                               int64_t rows, const float* q, const float* k, const float* v);
  // The outputs of the inputs' steps, to the first rows of [q_heads, rows, head_dim].
  void copy_out(const ModelConfig& config, int64_t rows, float* out) const;

 private:
  std::vector<float> q_, k_, v_, out_;  // [sequences] of [heads, n, head_dim]
  std::vector<StepInput> inputs_;       // [sequences]
};

}  // namespace kv::model
