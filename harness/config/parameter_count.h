// How many parameters a model has, from the shapes that its config.json states.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace kv::config {

// Embeddings (once where they are tied), attention, MLP or experts, norms: what the family's class in Hugging Face's
// transformers allocates. 0 where the family is not known here, or the file leaves a number out that it takes.
// The counts of published models are in the tests, to the last parameter.
int64_t count_parameters(const nlohmann::json& config);

}  // namespace kv::config
