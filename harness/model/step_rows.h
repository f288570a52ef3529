// The rows of one layer's step as caches take them: a model has heads outermost, a cache sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/model.h"
#include "variants/cache/cache.h"

namespace kv::model {

// From [outer, inner, row] to [inner, outer, row]: a model's rows [heads, sequences, n, head_dim] to a cache's
// [sequences, heads, n, head_dim], or back, with n * head_dim values a row.
void swap_axes(const float* from, int64_t outer, int64_t inner, int64_t row, float* to);

class StepRows {
 public:
  // The inputs of n tokens of each sequence in a layer: q [q_heads, sequences, n, head_dim], k and v likewise, as
  // Model::Attention gives them. They and their outputs are there until the next layer's are laid out.
  std::span<StepInput> lay_out(const ModelConfig& config, int layer, std::span<const SequenceId> ids,
                               int64_t n, const float* q, const float* k, const float* v);
  // The outputs of the inputs' steps, to [q_heads, sequences, n, head_dim].
  void copy_out(const ModelConfig& config, float* out) const;

 private:
  std::vector<float> q_, k_, v_, out_;  // [sequences, heads, n, head_dim]
  std::vector<StepInput> inputs_;       // [sequences]
};

}  // namespace kv::model
