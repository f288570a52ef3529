// The shape of a model, as its Hugging Face config.json states it.
#pragma once

#include <string>
#include <vector>

#include "variants/model_cache/layer_groups.h"

namespace kv::config {

struct Geometry {
  std::string name;
  std::string path;  // of the config.json; empty where a config names the numbers
  // `layers` are those that keep K and V. In a hybrid, the others hold a state of constant size, or nothing.
  int layers = 1, q_heads = 1, kv_heads = 1, head_dim = 64;
  int model_layers = 1;  // of any kind
  // Of every layer, [model_layers], as a cache has to know it.
  std::vector<ModelLayer> kinds;
  LinearShape linear;  // of linear layers, where the file states it; else all 0
  // Of `layers`, those whose queries see only the last `window` tokens (Gemma's local layers, for example).
  int windowed_layers = 0;
  int64_t window = 0;
  // MLA (DeepSeek-V2, arXiv:2405.04434): a layer keeps one row of so many values a token, the compressed
  // latent and the shared RoPE key, instead of K and V of every head. 0: it does not. `value_dim` of them are the
  // latent.
  int latent_dim = 0, value_dim = 0;
  // 0 where the file does not say.
  int64_t max_positions = 0;  // tokens it was trained for
  int64_t parameters = 0;
  bool parameters_computed = false;  // from the shapes in the file, which does not state how many there are
  int64_t weights_bytes = 0;         // parameters in the dtype that the file states
  std::string dtype;
};

// Of a cache for it. Throws nothing; caches refuse what they cannot hold.
ModelShape shape_of(const Geometry& geometry, int64_t max_tokens, int max_sequences);

// What it keeps, in a sentence: "32 layers, 8 KV heads of 128 for 32 query heads; trained for 8192 tokens".
std::string summary(const Geometry& geometry);

// From a Hugging Face config.json, of which a nested text_config is used where there is one. What a family's
// files leave to the defaults of its class (Gemma's head_dim, its pattern of windows) is known. A model that
// keeps something else than what Geometry can say is refused rather than counted wrongly.
//
// A key that is kvlab's own, "num_parameters", says how many parameters there are; without it they are computed, where
// the file is complete and of a family that parameter_count.cc knows.
//
// Throws std::invalid_argument, naming the file and the key.
Geometry read_geometry(const std::string& path);

// configs/models/NAME.json of the project folder. Throws std::invalid_argument with the presets that may be meant.
Geometry preset_geometry(const std::string& name);

// The names of the presets, sorted.
std::vector<std::string> preset_names();

// A preset's name, or the path of a config.json (anything with a '/' or ".json").
Geometry find_geometry(const std::string& name_or_path);

}  // namespace kv::config
