#include "harness/config/layer_rules.h"

#include <algorithm>
#include <map>
#include <string>

#include "harness/io/json.h"

namespace kv::config {
namespace {

using nlohmann::json;
using File = ModelSettings;
using Layers = std::vector<ModelLayer>;

void full(const File&, Layers&) {}

void none(const File&, Layers& layers) {
  for (ModelLayer& layer : layers) layer.kind = "mamba";
}

bool is_window(const std::string& kind) { return kind == "sliding" || kind == "chunked"; }

void set_window(const File& file, ModelLayer& layer, const std::string& kind = "sliding") {
  layer = {.kind = kind,
           .window = file.count(kind == "chunked" ? "attention_chunk_size" : "sliding_window",
                                ModelSettings::kMostCount)};
}

// Sets the layers from a list of their kinds under `key`; false if the file has none. "hybrid" is attention and a state;
// "moe" and "mlp" keep nothing, and a state of constant size is "mamba" or "linear" as the list calls it.
bool listed(const File& file, const char* key, Layers& layers) {
  if (!file.has(key)) return false;
  for (const char* behind :
       {"sliding_window", "sliding_window_pattern", "max_window_layers", "full_attention_interval"})
    file.has(behind);  // read, since the list says the same
  static const std::map<std::string, std::string> kinds{{"full_attention", "full"},
                                                        {"attention", "full"},
                                                        {"hybrid", "full"},
                                                        {"g", "full"},
                                                        {"sliding_attention", "sliding"},
                                                        {"chunked_attention", "chunked"},
                                                        {"linear_attention", "linear"},
                                                        {"mamba", "mamba"},
                                                        {"m", "mamba"},
                                                        {"mamba2", "mamba"},
                                                        {"conv", "conv"},
                                                        {"short_conv", "conv"},
                                                        {"recurrent", "recurrent"},
                                                        {"moe", "none"},
                                                        {"mlp", "none"}};
  const json& types = file.object()[key];
  if (!types.is_array() || types.size() != layers.size())
    file.refuse("'" + std::string(key) + "' must be a list of num_hidden_layers (" +
                std::to_string(layers.size()) + ") names");
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto kind = types[i].is_string() ? kinds.find(types[i].get<std::string>()) : kinds.end();
    if (kind == kinds.end())
      file.refuse("'" + std::string(key) + "' has " + io::shown(types[i]) +
                  ", and kvlab knows full_attention, sliding_attention, chunked_attention, linear_attention, "
                  "mamba, conv, recurrent, moe and mlp");
    layers[i].kind = kind->second;
    if (is_window(kind->second)) set_window(file, layers[i], kind->second);
  }
  return true;
}

// The layers of which `is_local(number)` holds have a window, if there is one; layer_types comes before that.
template <class IsLocal>
void local(const File& file, Layers& layers, IsLocal is_local) {
  if (listed(file, "layer_types", layers) || !file.has("sliding_window")) return;
  for (size_t i = 0; i < layers.size(); ++i)
    if (is_local(static_cast<int>(i))) set_window(file, layers[i]);
}

void every_local(const File& file, Layers& layers) {
  local(file, layers, [](int) { return true; });
}

void local_if_used(const File& file, Layers& layers) {
  if (file.flag("use_sliding_window", false)) every_local(file, layers);
}

// The layers from max_window_layers on.
void last_local(const File& file, Layers& layers) {
  const int first = file.count_or_zero("max_window_layers");
  const bool used = file.flag("use_sliding_window", true);
  local(file, layers, [&](int layer) { return used && layer >= first; });
}

void every_second_of_the_first_local(const File& file, Layers& layers) {
  const int end = file.count_or_zero("max_window_layers");
  const bool used = file.flag("use_sliding_window", false);
  local(file, layers, [&](int layer) { return used && layer < end && layer % 2 == 0; });
}

// Every n-th layer is global; or "LLLG", whose last layer is.
void pattern(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers) || !file.has("sliding_window")) return;
  if (file.object().value("sliding_window_pattern", json()).is_string()) {
    const std::string letters = file.text("sliding_window_pattern", "");
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      file.refuse("sliding_window_pattern", "the letters L and G, or a positive integer");
    local(file, layers, [&](int layer) {
      const auto i = static_cast<size_t>(layer);
      return i + 1 < layers.size() && letters[i % letters.size()] == 'L';
    });
    return;
  }
  const int every = file.count("sliding_window_pattern");
  local(file, layers, [&](int layer) { return (layer + 1) % every != 0; });
}

// Cohere 2's mixtures: the dense layers before them have a pattern of their own.
void dense_and_sparse_patterns(const File& file, Layers& layers) {
  const int dense = file.count_or_zero("first_k_dense_replace"), every = file.count("sliding_window_pattern"),
            every_dense = file.count("prefix_dense_sliding_window_pattern");
  local(file, layers, [&](int layer) {
    return layer < dense ? (layer + 1) % every_dense != 0 : (layer - dense + 1) % every != 0;
  });
}

// LFM 3: layers 2, 6, … see all, layers 4, 8, … have a window, and the others are short convolutions.
void fourths(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers)) return;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (i % 4 == 0 && i > 0)
      set_window(file, layers[i]);
    else if (i % 4 != 2)
      layers[i].kind = "conv";
  }
}

// Layers without RoPE are the others: no_rope_layers has 0 for them, and by default it is every n-th layer.
bool has_rope(const File& file, int layer, size_t layers) {
  if (file.is_off("no_rope_layers")) return (layer + 1) % file.count("no_rope_layer_interval") != 0;
  const json& rope = file.list("no_rope_layers");
  if (rope.size() != layers) file.refuse("no_rope_layers", "a list of num_hidden_layers flags");
  return rope[static_cast<size_t>(layer)] != 0;
}

void local_without_rope(const File& file, Layers& layers) {
  const bool used = file.flag("use_sliding_window", false);
  local(file, layers, [&](int layer) { return used && !has_rope(file, layer, layers.size()); });
}

// Llama 4: layers with RoPE attend within chunks of tokens.
void chunked_with_rope(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers) || !file.has("attention_chunk_size")) return;
  for (size_t i = 0; i < layers.size(); ++i)
    if (has_rope(file, static_cast<int>(i), layers.size())) set_window(file, layers[i], "chunked");
}

// The last num_kv_shared_layers read the cache of the last earlier layer of their kind.
void pattern_and_shared(const File& file, Layers& layers) {
  pattern(file, layers);
  const int sharing = file.count_or_zero("num_kv_shared_layers"), count = static_cast<int>(layers.size());
  if (sharing >= count)
    file.refuse("num_kv_shared_layers", "less than num_hidden_layers (" + std::to_string(count) + ")");
  for (int layer = count - sharing; layer < count; ++layer) {
    ModelLayer& of = layers[static_cast<size_t>(layer)];
    for (int source = 0; source < count - sharing; ++source)
      if (layers[static_cast<size_t>(source)].kind == of.kind) of.shares = source;
    if (of.shares < 0)
      file.refuse("layer " + std::to_string(layer) +
                  " shares its K and V, and no earlier layer is of its kind '" + of.kind + "'");
  }
}

template <class Keeps>
void rows_where(Layers& layers, const std::string& other, Keeps keeps) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (!keeps(static_cast<int>(i))) layers[i].kind = other;
}

void period(const File& file, Layers& layers) {
  const int every = file.count("attn_layer_period"), offset = file.count_or_zero("attn_layer_offset");
  rows_where(layers, "mamba", [&](int layer) { return layer % every == offset; });
}

// Zamba's periods begin after three layers, of which the last has attention.
void third_and_period(const File& file, Layers& layers) {
  if (listed(file, "layers_block_type", layers)) return;
  const int every = file.count("attn_layer_period"), offset = file.count_or_zero("attn_layer_offset");
  rows_where(layers, "mamba",
             [&](int layer) { return layer == 2 || (layer > 2 && (layer - 3) % every == offset); });
}

void interval(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers)) return;
  const int every = file.count("full_attention_interval");
  rows_where(layers, "linear", [&](int layer) { return (layer + 1) % every == 0; });
}

// The numbers of layers in a list, which begins to count with `first`.
void rows_at(const File& file, const char* key, const std::string& other, Layers& layers, int first = 0) {
  const json& numbers = file.list(key);
  rows_where(layers, other, [&](int layer) {
    return std::find(numbers.begin(), numbers.end(), layer + first) != numbers.end();
  });
}

void at_attn_layer_indices(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers) || listed(file, "layers_block_type", layers)) return;
  rows_at(file, "attn_layer_indices", "mamba", layers);
}

void at_hybrid_layer_ids(const File& file, Layers& layers) {
  if (!listed(file, "layers_block_type", layers)) rows_at(file, "hybrid_layer_ids", "mamba", layers);
}

void at_full_attn_idxs(const File& file, Layers& layers) {
  if (!listed(file, "layer_types", layers)) rows_at(file, "full_attn_idxs", "conv", layers);
}

void named(const File& file, Layers& layers) {
  if (!listed(file, "layer_types", layers) && !listed(file, "layers_block_type", layers))
    file.refuse("layer_types", "a list of num_hidden_layers names");
}

// Kimi Linear counts its layers from 1.
void at_full_attn_layers(const File& file, Layers& layers) {
  if (!listed(file, "layer_types", layers))
    rows_at(file.inner("linear_attn_config"), "full_attn_layers", "linear", layers, 1);
}

void but_cross_attention_layers(const File& file, Layers& layers) {
  const json& cross = file.list("cross_attention_layers");
  rows_where(layers, "cross",
             [&](int layer) { return std::find(cross.begin(), cross.end(), layer) == cross.end(); });
}

// Nemotron-H: M is a Mamba layer, * attention, - an MLP and E experts.
void letters(const File& file, Layers& layers) {
  if (listed(file, "layers_block_type", layers) || listed(file, "layer_types", layers)) return;
  const std::string all = file.text("hybrid_override_pattern", "");
  if (all.size() != layers.size() || all.find_first_not_of("M*-E") != std::string::npos)
    file.refuse("hybrid_override_pattern",
                "num_hidden_layers (" + std::to_string(layers.size()) + ") letters of M, *, - and E");
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].kind = all[i] == '*' ? "full" : all[i] == 'M' ? "mamba" : "none";
}

// Griffin repeats its block_types; its attention is local.
void blocks(const File& file, Layers& layers) {
  const json& types = file.list("block_types");
  if (types.empty()) file.refuse("block_types", "names of blocks");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types[i % types.size()] == "attention") {
      set_window(file, layers[i]);
    } else {
      layers[i].kind = "recurrent";
    }
  }
}

// MiniMax: 1 is attention, 0 is Lightning attention with a state.
void flags(const File& file, Layers& layers) {
  if (listed(file, "layer_types", layers) || file.is_off("attn_type_list")) return;
  const json& types = file.list("attn_type_list");
  if (types.size() != layers.size()) file.refuse("attn_type_list", "a list of num_hidden_layers numbers");
  rows_where(layers, "linear", [&](int layer) { return types[static_cast<size_t>(layer)] == 1; });
}

// SambaY (arXiv:2507.06607): Mamba layers alternate with windowed ones in the first half; one layer after it sees all, and
// the attention of the second half reads that one's cache. Its Mamba layers read a memory in place of a state.
void sambay(const File& file, Layers& layers) {
  const int every = file.count("mb_per_layer"), half = static_cast<int>(layers.size()) / 2;
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    ModelLayer& of = layers[static_cast<size_t>(layer)];
    if (layer % every == 0) {
      of.kind = "mamba";
    } else if (layer < half) {
      set_window(file, of);
    } else if (layer > half + 1) {
      of.shares = half + 1;
    }
  }
}

// Hymba (arXiv:2411.13676): attention and Mamba in every layer, windows but in a few, and groups of layers that share.
void reuse_groups(const File& file, Layers& layers) {
  const json& global = file.list("global_attn_idx");
  for (size_t i = 0; i < layers.size(); ++i)
    if (std::find(global.begin(), global.end(), static_cast<int>(i)) == global.end())
      set_window(file, layers[i]);
  if (file.is_off("kv_reuse_group")) return;
  for (const json& group : file.list("kv_reuse_group")) {
    for (const json& layer : group) {
      const bool good = layer.is_number_unsigned() && layer < layers.size() &&
                        group[0].is_number_unsigned() && group[0] <= layer;
      if (!good) file.refuse("kv_reuse_group", "lists of layers, in ascending order");
      if (layer != group[0]) layers[layer.get<size_t>()].shares = group[0].get<int>();
    }
  }
}

// PLaMo 2: attention in the middle of every mamba_step layers.
void middle_of_steps(const File& file, Layers& layers) {
  const int step = file.count("mamba_step"), count = static_cast<int>(layers.size());
  const json global = file.is_off("full_attention_idx") ? json::array() : file.list("full_attention_idx");
  for (int layer = 0; layer < count; ++layer) {
    const bool keeps = !file.flag("mamba_enabled", true) ||
                       (count <= step / 2 ? layer == count - 1 : layer % step == step / 2);
    ModelLayer& of = layers[static_cast<size_t>(layer)];
    if (!keeps) {
      of.kind = "mamba";
    } else if (std::find(global.begin(), global.end(), layer) == global.end()) {
      set_window(file, of);
    }
  }
}

void repeat(Layers& layers, int times) {
  const Layers once = layers;
  for (int i = 1; i < times; ++i) layers.insert(layers.end(), once.begin(), once.end());
}

void looped(const File& file, Layers& layers) {
  last_local(file, layers);
  repeat(layers, static_cast<int>(file.count("total_ut_steps", 1000)));
}

void two_each(const File&, Layers& layers) { repeat(layers, 2); }

// Cross-layer attention (arXiv:2405.12981): the first of every cla_share_factor layers keeps K and V for all of them.
void shared_across(const File& file, Layers& layers) {
  if (!file.flag("use_cla", false)) return;
  const int factor = file.count("cla_share_factor");
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer)
    if (layer % factor != 0) layers[static_cast<size_t>(layer)].shares = layer - layer % factor;
}

}  // namespace

const std::map<std::string, LayerRule>& layer_rules() {
  static const std::map<std::string, LayerRule> rules{
      {"local", every_local},
      {"full", full},
      {"none", none},
      {"last_local", last_local},
      {"every_second_of_the_first_local", every_second_of_the_first_local},
      {"local_if_used", local_if_used},
      {"pattern", pattern},
      {"pattern_and_shared", pattern_and_shared},
      {"dense_and_sparse_patterns", dense_and_sparse_patterns},
      {"fourths", fourths},
      {"local_without_rope", local_without_rope},
      {"chunked_with_rope", chunked_with_rope},
      {"period", period},
      {"third_and_period", third_and_period},
      {"interval", interval},
      {"at_attn_layer_indices", at_attn_layer_indices},
      {"at_hybrid_layer_ids", at_hybrid_layer_ids},
      {"at_full_attn_idxs", at_full_attn_idxs},
      {"at_full_attn_layers", at_full_attn_layers},
      {"but_cross_attention_layers", but_cross_attention_layers},
      {"named", named},
      {"letters", letters},
      {"blocks", blocks},
      {"flags", flags},
      {"sambay", sambay},
      {"reuse_groups", reuse_groups},
      {"middle_of_steps", middle_of_steps},
      {"looped", looped},
      {"two_each", two_each},
      {"shared_across", shared_across}};
  return rules;
}

}  // namespace kv::config
