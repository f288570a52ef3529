// The caches that `kvlab choose` considers.
#pragma once

#include <string>
#include <vector>

#include "harness/peers/engines.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::choose {

// Specs for a model of this shape: f16, ggml's blocks, codes of a token and of a channel, more bits for K than for V, and first and last
// layers that stay in f16. All keep every token: what eviction loses depends on the task, and no text stands for that.
// `engine`: instead those that it can express, one cache for all layers.
std::vector<std::string> candidate_specs(const ModelShape& shape, const peers::Engine* engine = nullptr);

}  // namespace kv::choose
