// The shape of a model, as its Hugging Face config.json states it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kv {

struct Geometry {
  std::string name;
  int layers = 1, q_heads = 1, kv_heads = 1, head_dim = 64;
};

// From a Hugging Face config.json. `head_dim` comes before hidden_size / num_attention_heads,
// num_key_value_heads defaults to num_attention_heads, and a nested text_config is used where there is one.
// Throws std::invalid_argument, naming the file and the key.
Geometry read_geometry(const std::string& path);

// configs/models/NAME.json of the project folder. Throws std::invalid_argument that lists the presets there
// are.
Geometry preset_geometry(const std::string& name);

}  // namespace kv
