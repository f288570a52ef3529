// The sizes of a model's weights, as its config.json states them: what Geometry has no use for.
#pragma once

#include <cstdint>
#include <string>

namespace kv::config {

struct WeightShapes {
  int64_t hidden = 0, intermediate = 0, vocab = 0;
  bool gated = true;  // the MLP has a gate beside up and down
  bool tied = false;  // embedding and classifier are one matrix
  // Of a layer that keeps a state of constant size instead of K and V (gated DeltaNet, arXiv:2412.06464): outputs of
  // its projections from the hidden size, and inputs of the one back.
  int64_t recurrent_in = 0, recurrent_out = 0;
  int64_t convolved = 0,
          convolution_kernel = 0;  // its short convolution: channels, and tokens that each sees
};

// Throws std::invalid_argument, naming the file and the key, for a key that is missing and for experts, whose weights
// differ from token to token.
WeightShapes read_weight_shapes(const std::string& path);

}  // namespace kv::config
