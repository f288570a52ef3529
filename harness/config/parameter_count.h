// The number of a model's parameters and the sizes of its weights, from the shapes in its config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kv::config {

// Counts embeddings (once if tied), attention, MLP or experts, and norms: all that the family's class in Hugging
// Face's transformers allocates. 0 for an unknown family, or if the file lacks a needed number. Tests hold the counts
// of published models, to the last parameter.
int64_t count_parameters(const nlohmann::json& config);

struct WeightShapes {
  int64_t hidden = 0, intermediate = 0, vocab = 0;
  bool gated = true;  // the MLP has a gate beside up and down
  bool tied = false;  // embedding and classifier are one matrix
  // A layer with a state of constant size instead of K and V (gated DeltaNet, arXiv:2412.06464): inputs of its projection
  // back to the hidden size.
  int64_t recurrent_out = 0;
  int64_t convolved = 0,
          convolution_kernel = 0;  // its short convolution: channels, and tokens that each sees
};

// Throws std::invalid_argument with the file and the key for a missing key, and for experts, whose weights differ
// from token to token.
WeightShapes read_weight_shapes(const std::string& path);

}  // namespace kv::config
