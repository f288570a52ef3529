// The number of a model's parameters, from the shapes in its config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace kv::config {

// Counts embeddings (once if tied), attention, MLP or experts, and norms: all that the family's class in Hugging
// Face's transformers allocates. 0 for an unknown family, or if the file lacks a needed number. Tests hold the counts
// of published models, to the last parameter.
int64_t count_parameters(const nlohmann::json& config);

}  // namespace kv::config
