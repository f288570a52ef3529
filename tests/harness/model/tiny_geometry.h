// Geometries of tiny models, for random weights.
#pragma once

#include <nlohmann/json.hpp>

namespace kv::test {

inline nlohmann::json tiny() {
  return {{"model_type", "llama"},        {"hidden_size", 48},        {"num_hidden_layers", 3},
          {"num_attention_heads", 6},     {"num_key_value_heads", 2}, {"head_dim", 8},
          {"intermediate_size", 80},      {"vocab_size", 100},        {"tie_word_embeddings", true},
          {"max_position_embeddings", 64}};
}

// 1 of 4 layers has attention, the others a state.
inline nlohmann::json tiny_hybrid() {
  nlohmann::json config = tiny();
  config.update({{"model_type", "qwen3_next"},
                 {"num_hidden_layers", 8},
                 {"full_attention_interval", 4},
                 {"linear_num_key_heads", 2},
                 {"linear_key_head_dim", 8},
                 {"linear_num_value_heads", 4},
                 {"linear_value_head_dim", 8}});
  return config;
}

}  // namespace kv::test
