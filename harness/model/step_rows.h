// The rows of one layer's step as caches take them: a model has heads outermost, a cache sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/model.h"
#include "variants/cache/cache.h"

namespace kv::model {

class StepRows {
 public:
  // The inputs of n tokens of each sequence in a layer: q [q_heads, rows, head_dim], of whose rows the first are those of
  // these sequences; k and v likewise, as Model::Attention gives them. They and their outputs are there until the next
  // layer's are laid out.
  std::span<StepInput> lay_out(const ModelConfig& config, int layer, std::span<const SequenceId> ids,
                               int64_t n, int64_t rows, const float* q, const float* k, const float* v);
  // The outputs of the inputs' steps, to the first rows of [q_heads, rows, head_dim].
  void copy_out(const ModelConfig& config, int64_t rows, float* out) const;

 private:
  std::vector<float> q_, k_, v_, out_;  // [sequences, heads, n, head_dim]
  std::vector<StepInput> inputs_;       // [sequences]
};

}  // namespace kv::model
