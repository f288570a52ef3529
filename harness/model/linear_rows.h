// The steps between the projections of a gated DeltaNet layer and its state (Yang et al. 2024, arXiv:2412.06464, as
// Qwen3-Next has it): a short convolution and the gates before the recurrence, a gated norm behind it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/weights.h"
#include "variants/cache/cache.h"

namespace kv::model {

// The last inputs of a sequence's short convolution, [kernel - 1, channels]; zeros, or empty, before its first token.
using ConvolutionWindow = std::vector<float>;

// Values of a token's projections.
int64_t projected_values(const LinearShape& shape);

class LinearRows {
 public:
  // The inputs of n tokens of each sequence for its state. `projected` [sequences, n, projected_values()]: a token's q and k
  // [key_heads, key_dim], v and its gate [value_heads, value_dim], step size and decay [value_heads]. The windows, one a
  // sequence, go on by n tokens. The inputs and their outputs are there until the next layer's are laid out.
  std::span<StepInput> lay_out(const LinearShape& shape, const LayerWeights& layer,
                               std::span<const SequenceId> ids, int64_t n, const float* projected,
                               std::span<ConvolutionWindow> windows);
  // The outputs of the inputs' steps, normed and gated, to [sequences, n, value_heads * value_dim].
  void copy_out(const LinearShape& shape, const LayerWeights& layer, float epsilon, const float* projected,
                float* out) const;

 private:
  std::vector<float> q_, k_, v_, out_, alpha_, beta_;  // [sequences, heads, n, dim]; the last two without dim
  std::vector<StepInput> inputs_;                      // [sequences]
};

}  // namespace kv::model
