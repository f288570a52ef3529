// The shape of a model, from its Hugging Face config.json.
#pragma once

#include <string>
#include <vector>

#include "harness/config/model_types.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::config {

struct Geometry {
  std::string name;
  std::string path;  // config.json; empty if a config gives the numbers
  // `layers` keep K and V. A hybrid's other layers hold a state of constant size, or nothing.
  int layers = 1, q_heads = 1, kv_heads = 1, head_dim = 64;
  int model_layers = 1;  // layers of any kind
  // [model_layers]: each layer's properties that a cache must know.
  std::vector<ModelLayer> kinds;
  LinearShape linear;  // the linear layers', if the file states it; else all 0
  // Those of `layers` whose queries see no more than the last `window` tokens (Gemma's local layers), or those of their chunk.
  int windowed_layers = 0;
  int64_t window = 0;
  // MLA (DeepSeek-V2, arXiv:2405.04434): a layer keeps one row of this many values a token, the compressed latent and
  // the shared RoPE key, instead of K and V of every head; the first `value_dim` are the latent. 0: no MLA.
  int latent_dim = 0, value_dim = 0;
  // 0 if the file does not say.
  int64_t max_positions = 0;  // context that it was trained for
  int64_t parameters = 0;
  bool parameters_computed = false;  // from the shapes in the file, which states no count
  int64_t weights_bytes = 0;         // parameters in the file's dtype
  std::string dtype;
  std::vector<std::string> notes;  // clauses of summary(): what the numbers leave out, and what was trusted
};

// The shape of a cache for it. Throws nothing; caches refuse shapes that they cannot hold.
ModelShape shape_of(const Geometry& geometry, int64_t max_tokens, int max_sequences);

// One sentence: "32 layers, 8 KV heads of 128 for 32 query heads; trained for 8192 tokens".
std::string summary(const Geometry& geometry);

// Of a Hugging Face config.json, or its nested text_config, as the model_type's class reads it (model_types.h). Unless `trusted`,
// a file is refused rather than counted wrongly if its model_type or a key that may change what its layers keep is unknown.
//
// kvlab's own key "num_parameters" states the number of parameters. Without it they are computed, if the file is
// complete and parameter_count.cc knows the family.
//
// Throws std::invalid_argument with the file and the key.
Geometry geometry_of(const ModelFile& file, bool trusted = false);
Geometry read_geometry(const std::string& path, bool trusted = false);

// Reads configs/models/NAME.json of the project folder. Throws std::invalid_argument with similar presets.
Geometry preset_geometry(const std::string& name);

// The names of the presets, sorted.
std::vector<std::string> preset_names();

// A preset's name, or the path of a config.json (anything with a '/' or ".json").
Geometry find_geometry(const std::string& name_or_path, bool trusted = false);

}  // namespace kv::config
