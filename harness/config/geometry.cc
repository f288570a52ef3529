#include "harness/config/geometry.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string_view>

#include "harness/config/parameter_count.h"
#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"
#include "variants/cache/near_names.h"
#include "variants/model_cache/resolve.h"

namespace kv::config {
namespace {

using nlohmann::json;

// Keys that config.json files of a family omit because the family's class has defaults.
const std::map<std::string, json>& class_defaults() {
  static const std::map<std::string, json> table{
      {"gemma", {{"head_dim", 256}}},
      {"gemma2",
       {{"num_attention_heads", 8},
        {"num_key_value_heads", 4},
        {"head_dim", 256},
        {"sliding_window", 4096},
        {"sliding_window_pattern", 2}}},
      {"gemma3_text",
       {{"num_attention_heads", 8},
        {"num_key_value_heads", 4},
        {"head_dim", 256},
        {"sliding_window", 4096},
        {"sliding_window_pattern", 6}}},
      {"cohere2", {{"sliding_window_pattern", 4}}},
      {"olmo3", {{"sliding_window_pattern", 4}}},
      {"gpt_oss", {{"head_dim", 64}, {"sliding_window", 128}, {"sliding_window_pattern", 2}}},
      {"qwen2", {{"use_sliding_window", false}, {"max_window_layers", 28}}},
      {"qwen2_moe", {{"use_sliding_window", false}, {"max_window_layers", 28}}},
      {"qwen3", {{"head_dim", 128}, {"use_sliding_window", false}, {"max_window_layers", 28}}},
      {"qwen3_moe", {{"use_sliding_window", false}, {"max_window_layers", 28}}},
      {"qwen3_next",
       {{"head_dim", 256},
        {"full_attention_interval", 4},
        {"linear_num_key_heads", 16},
        {"linear_num_value_heads", 32},
        {"linear_key_head_dim", 128},
        {"linear_value_head_dim", 128}}},
      {"qwen3_5_text", {{"head_dim", 256}, {"full_attention_interval", 4}}},
      {"qwen3_5_moe_text", {{"head_dim", 256}, {"full_attention_interval", 4}}},
      {"jamba", {{"attn_layer_period", 8}, {"attn_layer_offset", 4}}},
  };
  return table;
}

// Keys of models that keep something beyond Geometry.
constexpr std::array kForeignKeys{
    "block_types",          "_block_types",       "attn_layer_indices", "hybrid_layer_ids",
    "layers_block_type",    "attn_type_list",     "block_configs",      "hybrid_override_pattern",
    "index_head_dim",       "global_head_dim",    "is_encoder_decoder", "cross_attention_layers",
    "attention_chunk_size", "linear_attn_config", "layer_group_size",   "global_attn_every_n_layers"};

// Other names of a fact in older families: GPT-2's and Falcon's.
const std::vector<const char*> kLayers{"num_hidden_layers", "n_layer"};
const std::vector<const char*> kHeads{"num_attention_heads", "n_head"};
const std::vector<const char*> kHidden{"hidden_size", "n_embd"};
const std::vector<const char*> kKvHeads{"num_key_value_heads", "num_kv_heads"};
const std::vector<const char*> kPositions{"max_position_embeddings", "n_positions"};

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& path) : path_(path) {
    if (!std::filesystem::exists(path))
      throw std::invalid_argument("cannot read " + path + "; a Hugging Face config.json is needed");
    config_ = io::parse_json(io::read_text(path), path);
    if (!config_.is_object()) fail("not a JSON object; a Hugging Face config.json is one");
    if (config_.contains("text_config") && config_["text_config"].is_object()) use_text_config();
    const auto family = class_defaults().find(text("model_type"));
    if (family == class_defaults().end()) return;
    for (const auto& [key, value] : family->second.items()) {
      // An explicit null stays: a family's file turns its windows off with it.
      if (!config_.contains(key)) config_[key] = value;
    }
  }

  Geometry geometry() const {
    refuse_foreign_keys();
    Geometry g;
    g.name = model_name();
    g.path = path_;
    g.model_layers = static_cast<int>(positive(kLayers, 10'000));
    g.q_heads = static_cast<int>(positive(kHeads));
    g.kv_heads = kv_heads(g.q_heads);
    read_layers(g);
    if (has("kv_lora_rank")) {
      g.value_dim = static_cast<int>(positive({"kv_lora_rank"}));
      g.latent_dim = static_cast<int>(g.value_dim + positive({"qk_rope_head_dim"}));
      g.kv_heads = 1;
      g.head_dim = g.latent_dim;
    } else {
      g.head_dim = head_dim(g.q_heads);
      if (g.q_heads % g.kv_heads != 0) {
        fail("num_attention_heads (" + std::to_string(g.q_heads) +
             ") must be a multiple of num_key_value_heads (" + std::to_string(g.kv_heads) + ")");
      }
    }
    if (any_of(kPositions)) g.max_positions = positive(kPositions);
    read_weights(g);
    return g;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw std::invalid_argument(path_ + ": " + what); }

  // Uses the text model of a multimodal one; the outer level has the dtype and count of the weights.
  void use_text_config() {
    json text_model = config_["text_config"];
    for (const char* key : {"torch_dtype", "dtype", "quantization_config", "num_parameters"}) {
      if (!text_model.contains(key) && config_.contains(key)) text_model[key] = config_[key];
    }
    config_ = text_model;
    has_other_weights_ = true;
  }

  // A file called "config" takes the name of its folder.
  std::string model_name() const {
    const std::filesystem::path file = std::filesystem::absolute(path_);
    const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
    return stem == "config" && !folder.empty() ? folder : stem;
  }

  bool has(const char* key) const { return config_.contains(key) && !config_[key].is_null(); }
  const char* any_of(const std::vector<const char*>& keys) const {
    for (const char* key : keys)
      if (has(key)) return key;
    return nullptr;
  }
  bool is(const char* key, bool value) const {
    return has(key) && config_[key].is_boolean() && config_[key].get<bool>() == value;
  }
  std::string text(const char* key) const {
    return has(key) && config_[key].is_string() ? config_[key].get<std::string>() : "";
  }

  // A positive integer under the first of these keys that exists.
  int64_t positive(const std::vector<const char*>& keys, int64_t most = 100'000'000) const {
    const char* key = any_of(keys);
    if (!key) fail("'" + std::string(keys.front()) + "' is missing; a Hugging Face config.json has it");
    const json& value = config_[key];
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > most) {
      fail("'" + std::string(key) + "' must be a positive integer, not " + io::shown(value));
    }
    return value.get<int64_t>();
  }

  void refuse_foreign_keys() const {
    for (const char* key : kForeignKeys) {
      if (!has(key) || is(key, false) || config_[key] == 0 || config_[key].empty()) continue;
      fail("'" + std::string(key) + "' changes what the layers keep, in a way that kvlab does not know");
    }
  }

  int kv_heads(int q_heads) const {
    if (any_of(kKvHeads) && !is("multi_query", true)) return static_cast<int>(positive(kKvHeads));
    // Falcon's first architecture has one head regardless of num_kv_heads; its second has num_kv_heads.
    if (is("multi_query", true) && !is("new_decoder_architecture", true)) return 1;
    return any_of(kKvHeads) ? static_cast<int>(positive(kKvHeads)) : q_heads;
  }

  // Since Mistral and Gemma head_dim is independent; older configs imply it by division.
  int head_dim(int q_heads) const {
    if (has("head_dim")) return static_cast<int>(positive({"head_dim"}));
    const int64_t hidden = positive(kHidden);
    if (hidden % q_heads != 0) {
      fail("hidden_size (" + std::to_string(hidden) + ") must be a multiple of num_attention_heads (" +
           std::to_string(q_heads) + ") where there is no head_dim");
    }
    return static_cast<int>(hidden / q_heads);
  }

  void read_layers(Geometry& g) const {
    g.layers = 0;
    for (int layer = 0; layer < g.model_layers; ++layer) {
      ModelLayer& kind = g.kinds.emplace_back();
      kind.kind = layer_kind(layer, g.model_layers);
    }
    read_shared_layers(g);
    for (const ModelLayer& kind : g.kinds) {
      g.layers += keeps_rows(kind) && kind.shares < 0;
      g.windowed_layers += kind.kind == "sliding" && kind.shares < 0;
    }
    if (g.layers == 0) fail("no layer keeps K and V");
    if (g.windowed_layers > 0) g.window = positive({"sliding_window"});
    for (ModelLayer& kind : g.kinds) {
      if (kind.kind == "sliding") kind.window = g.window;
    }
    read_linear(g);
  }

  // Gemma 3n: each of the last layers reads the cache of the last earlier layer of its kind.
  void read_shared_layers(Geometry& g) const {
    const int64_t sharing = has("num_kv_shared_layers") ? count("num_kv_shared_layers") : 0;
    if (sharing >= g.model_layers)
      fail("num_kv_shared_layers (" + std::to_string(sharing) + ") must be less than num_hidden_layers (" +
           std::to_string(g.model_layers) + ")");
    const int own = g.model_layers - static_cast<int>(sharing);
    for (int layer = own; layer < g.model_layers; ++layer) {
      ModelLayer& kind = g.kinds[static_cast<size_t>(layer)];
      for (int source = 0; source < own; ++source) {
        if (g.kinds[static_cast<size_t>(source)].kind == kind.kind && keeps_rows(kind)) kind.shares = source;
      }
      if (kind.shares < 0)
        fail("layer " + std::to_string(layer) + " shares its K and V, and no earlier layer is of its kind '" +
             kind.kind + "'");
    }
  }

  // The state of gated DeltaNet layers, if the file has all of its numbers.
  void read_linear(Geometry& g) const {
    const bool any = std::any_of(g.kinds.begin(), g.kinds.end(), is_linear);
    if (!any || !has("linear_num_value_heads") || !has("linear_key_head_dim")) return;
    g.linear = {.key_heads = static_cast<int>(positive({"linear_num_key_heads"}, 10'000)),
                .value_heads = static_cast<int>(positive({"linear_num_value_heads"}, 10'000)),
                .key_dim = static_cast<int>(positive({"linear_key_head_dim"}, 10'000)),
                .value_dim = static_cast<int>(positive({"linear_value_head_dim"}, 10'000))};
    if (g.linear.value_heads % g.linear.key_heads != 0)
      fail("linear_num_value_heads must be a multiple of linear_num_key_heads");
  }

  std::string layer_kind(int layer, int layers) const {
    if (has("layer_types")) return layer_type(layer, layers);
    if (has("full_attention_interval")) {
      return (layer + 1) % positive({"full_attention_interval"}) == 0 ? "full" : "linear";
    }
    if (has("attn_layer_period")) {
      return layer % positive({"attn_layer_period"}) == offset() ? "full" : "mamba";
    }
    if (!has("sliding_window") || is("use_sliding_window", false)) return "full";
    const char* pattern = any_of({"sliding_window_pattern", "_sliding_window_pattern"});
    if (pattern) return (layer + 1) % positive({pattern}) == 0 ? "full" : "sliding";
    const bool below = is("use_sliding_window", true) && layer < first_window();
    return below ? "full" : "sliding";
  }

  // An integer that may be 0.
  int64_t count(const char* key) const { return has(key) && config_[key] == 0 ? 0 : positive({key}); }
  int64_t offset() const { return count("attn_layer_offset"); }
  // Qwen2: the layers before this one see all tokens.
  int64_t first_window() const { return has("max_window_layers") ? count("max_window_layers") : 0; }

  std::string layer_type(int layer, int layers) const {
    const json& types = config_["layer_types"];
    if (!types.is_array() || types.size() != static_cast<size_t>(layers)) {
      fail("'layer_types' must be a list of num_hidden_layers (" + std::to_string(layers) + ") names");
    }
    const json& type = types[static_cast<size_t>(layer)];
    if (type == "full_attention" || type == "attention") return "full";
    if (type == "sliding_attention") return "sliding";
    if (type == "linear_attention") return "linear";
    if (type == "mamba" || type == "conv") return type;
    fail("'layer_types' has " + io::shown(type) +
         ", and kvlab knows full_attention, sliding_attention, linear_attention, mamba and conv");
  }

  void read_weights(Geometry& g) const {
    g.dtype = text(has("dtype") ? "dtype" : "torch_dtype");
    if (has("num_parameters")) {
      g.parameters = positive({"num_parameters"}, int64_t{1} << 50);
    } else if (!has_other_weights_) {
      g.parameters = count_parameters(config_);
      g.parameters_computed = g.parameters > 0;
    }
    // The dtype does not apply to quantised weights.
    if (has("quantization_config")) return;
    if (g.dtype == "bfloat16" || g.dtype == "float16") g.weights_bytes = 2 * g.parameters;
    if (g.dtype == "float32") g.weights_bytes = 4 * g.parameters;
  }

  std::string path_;
  json config_;
  bool has_other_weights_ = false;  // a multimodal model's other weights
};

// "; did you mean 'mistral-7b'?", or nothing.
std::string meant_preset(const std::string& name, const std::vector<std::string>& presets) {
  return did_you_mean(name, std::vector<std::string_view>(presets.begin(), presets.end()));
}

std::filesystem::path preset_folder() { return io::project_home() / "configs" / "models"; }

}  // namespace

namespace {

// Describes the layers without K and V.
std::string others_text(const Geometry& g) {
  const auto sharing =
      std::count_if(g.kinds.begin(), g.kinds.end(), [](const ModelLayer& l) { return l.shares >= 0; });
  if (sharing == g.model_layers - g.layers) return "the others read the cache of an earlier layer";
  const auto linear = std::count_if(g.kinds.begin(), g.kinds.end(), is_linear);
  if (g.linear.value_heads == 0 || linear < g.model_layers - g.layers)
    return "what the others keep does not grow and is not counted";
  const LinearShape& s = g.linear;
  return std::to_string(linear) + " keep a state of " + std::to_string(s.value_heads) + " x " +
         std::to_string(s.key_dim) + " x " + std::to_string(s.value_dim) +
         " values in f32, counted without the window of their short convolution";
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
            " values a token (MLA) in place of K and V, stored as the codec stores K";
  } else {
    text += ", " + count(g.kv_heads) + (g.kv_heads == 1 ? " KV head of " : " KV heads of ") +
            count(g.head_dim) + " for " + count(g.q_heads) + " query heads";
  }
  return text + (g.max_positions > 0 ? "; trained for " + count(g.max_positions) + " tokens." : ".");
}

Geometry read_geometry(const std::string& path) {
  if (!io::is_gguf(path)) return ConfigFile(path).geometry();
  Geometry g = ConfigFile(io::config_of_gguf(path)).geometry();
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

Geometry find_geometry(const std::string& name_or_path) {
  const bool path = name_or_path.find('/') != std::string::npos ||
                    std::filesystem::path(name_or_path).extension() == ".json" || io::is_gguf(name_or_path);
  if (!path) return preset_geometry(name_or_path);
  // A name on Hugging Face: "meta-llama/Llama-3.1-8B".
  if (!std::filesystem::exists(name_or_path))
    throw std::invalid_argument("cannot read " + name_or_path + "; a Hugging Face config.json is needed" +
                                meant_preset(std::filesystem::path(name_or_path).filename(), preset_names()));
  return read_geometry(name_or_path);
}

}  // namespace kv::config
