#include "harness/config/geometry.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "harness/config/parameter_count.h"
#include "harness/io/json.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "variants/cache/near_names.h"
#include "variants/model_cache/resolve.h"

namespace kv::config {
namespace {

// A file called "config" takes the name of its folder.
std::string model_name(const std::string& path) {
  const std::filesystem::path file = std::filesystem::absolute(path);
  const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
  return stem == "config" && !folder.empty() ? folder : stem;
}

void read_layers(const ModelFile& file, Geometry& g) {
  g.kinds.resize(static_cast<size_t>(file.settings.count("num_hidden_layers", kMostLayers)));
  if (file.type) apply_layer_rule(file.type->layers, file.settings, g.kinds);
  g.model_layers = static_cast<int>(g.kinds.size());
  g.layers = 0;
  for (const ModelLayer& layer : g.kinds) {
    const bool keeps = keeps_rows(layer) && layer.shares < 0;
    g.layers += keeps;
    g.windowed_layers += keeps && layer.window > 0;
    g.window = std::max(g.window, layer.window);
  }
  if (g.layers == 0)
    file.settings.refuse(
        "no layer keeps K and V: their states do not grow with the tokens, so there is no KV cache to count");
}

// The state of gated DeltaNet layers, if the file has all of its numbers.
void read_linear(const ModelSettings& file, Geometry& g) {
  const bool any = std::any_of(g.kinds.begin(), g.kinds.end(), is_linear);
  if (!any || !file.has("linear_num_value_heads") || !file.has("linear_key_head_dim")) return;
  const auto count = [&](const char* key) { return static_cast<int>(file.count(key, 10'000)); };
  g.linear = {.key_heads = count("linear_num_key_heads"),
              .value_heads = count("linear_num_value_heads"),
              .key_dim = count("linear_key_head_dim"),
              .value_dim = count("linear_value_head_dim")};
  if (g.linear.value_heads % g.linear.key_heads != 0)
    file.refuse("linear_num_value_heads must be a multiple of linear_num_key_heads");
}

// Since Mistral and Gemma head_dim is independent; older configs imply it by division.
int head_dim(const ModelSettings& file, int q_heads) {
  if (file.has("head_dim")) return file.count("head_dim");
  const int hidden = file.count("hidden_size");
  if (hidden % q_heads != 0) {
    file.refuse("hidden_size (" + std::to_string(hidden) + ") must be a multiple of num_attention_heads (" +
                std::to_string(q_heads) + ") if head_dim is missing");
  }
  return hidden / q_heads;
}

void read_heads(const ModelFile& file, Geometry& g) {
  const ModelSettings& settings = file.settings;
  g.q_heads = settings.count("num_attention_heads");
  if (file.type && file.type->latent) {
    g.value_dim = settings.count("kv_lora_rank");
    g.head_dim = g.latent_dim = g.value_dim + settings.count("qk_rope_head_dim");
    return;
  }
  if (!settings.has("num_key_value_heads") && !file.unknown.empty())
    settings.refuse("'num_key_value_heads' is missing, and '" + file.unknown.front() +
                    "' may say how many there are; state it");
  g.kv_heads = settings.has("num_key_value_heads") ? settings.count("num_key_value_heads") : g.q_heads;
  g.head_dim = head_dim(settings, g.q_heads);
  if (g.q_heads % g.kv_heads != 0) {
    settings.refuse("num_attention_heads (" + std::to_string(g.q_heads) +
                    ") must be a multiple of num_key_value_heads (" + std::to_string(g.kv_heads) + ")");
  }
}

void read_weights(const ModelFile& file, Geometry& g) {
  const ModelSettings& settings = file.settings;
  g.dtype = settings.text(settings.has("dtype") ? "dtype" : "torch_dtype", "");
  if (settings.has("num_parameters")) {
    g.parameters = settings.count("num_parameters", int64_t{1} << 50);
  } else if (!file.is_part) {
    g.parameters = count_parameters(settings.object());
    g.parameters_computed = g.parameters > 0;
  }
  // The dtype does not apply to quantised weights.
  if (settings.has("quantization_config")) return;
  if (g.dtype == "bfloat16" || g.dtype == "float16") g.weights_bytes = 2 * g.parameters;
  if (g.dtype == "float32") g.weights_bytes = 4 * g.parameters;
}

// Clauses on what is not counted.
std::vector<std::string> notes_of(const ModelFile& file) {
  std::vector<std::string> notes;
  if (file.type && !file.type->note.empty()) notes.push_back(file.type->note);
  if (const std::string key = draft_key(file.settings); !key.empty())
    notes.push_back("layers for drafts (" + key + ": " + io::shown(file.settings.object()[key]) +
                    ") have their own caches, which are not counted");
  if (!file.type)
    notes.push_back("the model_type is unknown: kvlab assumes that every layer keeps K and V of every token");
  for (const std::string& key : file.unknown)
    notes.push_back("'" + key + "' is not read, as --trust-config says");
  return notes;
}

// "; did you mean 'mistral-7b'?", or nothing.
std::string meant_preset(const std::string& name, const std::vector<std::string>& presets) {
  return did_you_mean(name, std::vector<std::string_view>(presets.begin(), presets.end()));
}

std::filesystem::path preset_folder() { return io::project_home() / "configs" / "models"; }

// Describes the layers without K and V of their own.
std::string others_text(const Geometry& g) {
  const auto linear = std::count_if(g.kinds.begin(), g.kinds.end(), is_linear),
             sharing = std::count_if(g.kinds.begin(), g.kinds.end(),
                                     [](const ModelLayer&layer) { return layer.shares >= 0; });
  std::string text;
  const auto add = [&](const std::string& clause) { text += (text.empty() ? "" : "; ") + clause; };
  if (sharing > 0) add(std::to_string(sharing) + " read the cache of an earlier layer");
  const LinearShape& s = g.linear;
  if (linear > 0 && s.value_heads > 0)
    add(std::to_string(linear) + " keep a state of " + std::to_string(s.value_heads) + " x " +
        std::to_string(s.key_dim) + " x " + std::to_string(s.value_dim) +
        " values in f32, counted without the window of their short convolution");
  if (g.layers + sharing + (s.value_heads > 0 ? linear : 0) < g.model_layers)
    add("the states of the other layers do not grow and are not counted");
  return text;
}

}  // namespace

ModelShape shape_of(const Geometry& geometry, int64_t max_tokens, int max_sequences) {
  return {{.layers = geometry.model_layers,
           .q_heads = geometry.q_heads,
           .kv_heads = geometry.kv_heads,
           .head_dim = geometry.head_dim,
           .max_tokens = max_tokens,
           .max_sequences = max_sequences,
           .value_dim = geometry.value_dim},
          geometry.kinds,
          geometry.linear};
}

std::string summary(const Geometry& g) {
  const auto count = [](int64_t n) { return std::to_string(n); };
  std::string text = count(g.model_layers) + " layers";
  if (g.layers < g.model_layers) {
    text += ", of which " + count(g.layers) + " keep K and V (" + others_text(g) + ")";
  }
  if (g.windowed_layers == g.layers) {
    text += ", all with a window of " + count(g.window) + " tokens";
  } else if (g.windowed_layers > 0) {
    text += ", " + count(g.windowed_layers) + " of them with a window of " + count(g.window) + " tokens";
  }
  if (g.latent_dim > 0) {
    text += ", each with one latent row of " + count(g.latent_dim) +
            " values per token (MLA) instead of K and V, stored as the codec stores K";
  } else {
    text += ", " + count(g.kv_heads) + (g.kv_heads == 1 ? " KV head of " : " KV heads of ") +
            count(g.head_dim) + " for " + count(g.q_heads) + " query heads";
  }
  if (g.max_positions > 0) text += "; trained for " + count(g.max_positions) + " tokens";
  for (const std::string& note : g.notes) text += "; " + note;
  return text + ".";
}

Geometry geometry_of(const ModelFile& file, bool trusted) {
  check_known(file, trusted);
  Geometry g;
  g.path = file.settings.path();
  g.name = model_name(g.path);
  read_layers(file, g);
  read_linear(file.settings, g);
  read_heads(file, g);
  if (file.settings.has("max_position_embeddings"))
    g.max_positions = file.settings.count("max_position_embeddings", 100'000'000);
  read_weights(file, g);
  g.notes = notes_of(file);
  return g;
}

Geometry read_geometry(const std::string& path, bool trusted) {
  if (!io::is_gguf(path)) return geometry_of(read_model_file(path), trusted);
  Geometry g = geometry_of(read_model_file(io::config_of_gguf(path)), trusted);
  g.name = std::filesystem::path(path).stem();
  return g;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(preset_folder())) {
    for (const auto& entry : std::filesystem::directory_iterator(preset_folder()))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Geometry preset_geometry(const std::string& name) {
  const std::filesystem::path file = preset_folder() / (name + ".json");
  if (name.find('/') == std::string::npos && std::filesystem::exists(file)) {
    Geometry g = read_geometry(file.string());
    g.name = name;
    return g;
  }
  const std::vector<std::string> names = preset_names();
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "; there are " : ", ") + n;
  const std::string meant = meant_preset(name, names);
  throw std::invalid_argument(
      "there is no model '" + name + "' in configs/models" +
      (meant.empty() ? all : meant + " `kvlab list --models` has all " + std::to_string(names.size())));
}

Geometry find_geometry(const std::string& name_or_path, bool trusted) {
  const bool path = name_or_path.find('/') != std::string::npos ||
                    std::filesystem::path(name_or_path).extension() == ".json" || io::is_gguf(name_or_path);
  if (!path) return preset_geometry(name_or_path);
  // A name on Hugging Face: "meta-llama/Llama-3.1-8B".
  if (!std::filesystem::exists(name_or_path))
    throw std::invalid_argument("cannot read " + name_or_path + "; a Hugging Face config.json is needed" +
                                meant_preset(std::filesystem::path(name_or_path).filename(), preset_names()));
  return read_geometry(name_or_path, trusted);
}

}  // namespace kv::config
