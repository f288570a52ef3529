// A Hugging Face folder of the Llama family: config.json, and weights in one or several .safetensors.
//
// Llama, Mistral and Qwen2 are one forward pass that differs in numbers, biases and the sliding window. Their
// converted weights have their query and key rows permuted so that rotary pairs are the two halves of a head
// (transformers, convert_llama_weights_to_hf.py), unlike Meta's own files and llama2.c's.
#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "harness/config/geometry.h"
#include "harness/io/json.h"
#include "harness/io/mapped_file.h"
#include "harness/io/safetensors.h"
#include "harness/model/weights.h"

namespace kv::model {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json read_json(const std::string& path) {
  if (!fs::exists(path))
    throw std::invalid_argument("cannot read " + path + "; a Hugging Face model folder has it");
  json object = io::parse_json(io::read_text(path), path);
  if (!object.is_object()) throw std::invalid_argument(path + ": not a JSON object");
  return object;
}

// An object of config.json whose keys are read with their checks.
class Settings {
 public:
  Settings(json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument(path_ + ": " + what);
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    const auto found = object_.find(key);
    refuse("'" + key + "' " +
           (found == object_.end() ? "is missing; expected " : "is " + io::shown(*found) + ", expected ") +
           expected);
  }

  bool has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }

  double number(const std::string& key, double fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_number() || !(object_[key].get<double>() > 0)) refuse(key, "a positive number");
    return object_[key].get<double>();
  }
  int count(const std::string& key) const {
    constexpr int64_t kMost = 1 << 24;
    if (!has(key) || !object_[key].is_number_integer() || object_[key].get<int64_t>() < 1 ||
        object_[key].get<int64_t>() > kMost) {
      refuse(key, "a positive integer");
    }
    return object_[key].get<int>();
  }
  bool flag(const std::string& key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_boolean()) refuse(key, "true or false");
    return object_[key].get<bool>();
  }
  std::string text(const std::string& key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_string()) refuse(key, "text");
    return object_[key].get<std::string>();
  }
  std::vector<std::string> texts(const std::string& key) const {
    std::vector<std::string> values;
    if (!has(key)) return values;
    for (const json& item : object_[key]) {
      if (!item.is_string()) refuse(key, "a list of texts");
      values.push_back(item.get<std::string>());
    }
    return values;
  }
  Settings inner(const std::string& key) const {
    if (!has(key)) return {json::object(), path_};
    if (!object_[key].is_object()) refuse(key, "an object");
    return {object_[key], path_};
  }

 private:
  json object_;
  std::string path_;
};

// transformers 5 has all of it in rope_parameters; before, theta lay beside rope_scaling.
Rope read_rope(const Settings& config) {
  const Settings rope = config.inner(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  Rope r{.theta = rope.number("rope_theta", config.number("rope_theta", 10000.0)),
         .pairs = RopePairs::kHalfSplit};
  if (rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) != 1.0)
    config.refuse("'partial_rotary_factor' other than 1 is not implemented");
  if (type == "default") return r;
  if (type != "linear" && type != "llama3") {
    config.refuse("rotary scaling '" + type + "' is not implemented; known are default, linear and llama3");
  }
  if (!rope.has("factor")) rope.refuse("factor", "a positive number, for rotary scaling '" + type + "'");
  r.factor = rope.number("factor", 1.0);
  if (type == "linear") return r;
  r.low = rope.number("low_freq_factor", 1.0);
  r.high = rope.number("high_freq_factor", 4.0);
  r.trained_tokens = rope.count("original_max_position_embeddings");
  if (!(r.low < r.high)) rope.refuse("low_freq_factor", "less than high_freq_factor");
  return r;
}

// In tokens, the query's own included; 0: none. Newer configs say it of each layer, older ones of Qwen2 by a
// number of layers that do not slide.
int64_t read_window(const Settings& config, const std::string& type, int layers) {
  const std::vector<std::string> types = config.texts("layer_types");
  if (type == "llama" || !config.has("sliding_window")) return 0;
  if (type == "qwen2" && !config.flag("use_sliding_window", false)) return 0;
  const int64_t window = config.count("sliding_window");
  int64_t sliding = layers;
  if (!types.empty()) {
    sliding = std::count(types.begin(), types.end(), "sliding_attention");
  } else if (type == "qwen2" && config.has("max_window_layers")) {
    sliding = layers - std::min<int64_t>(layers, static_cast<int64_t>(config.number("max_window_layers", 1)));
  }
  if (sliding != 0 && sliding != layers) {
    config.refuse(std::to_string(sliding) + " of " + std::to_string(layers) +
                  " layers have a sliding window; a model needs one kind of attention in all layers here");
  }
  return sliding > 0 ? window : 0;
}

std::string check_kind(const Settings& config) {
  const std::string type = config.text("model_type", "");
  if (type != "llama" && type != "mistral" && type != "qwen2") {
    config.refuse("model_type '" + type + "' is not implemented; known are llama, mistral and qwen2");
  }
  if (config.text("hidden_act", "silu") != "silu") config.refuse("hidden_act", "\"silu\"");
  if (config.flag("mlp_bias", false)) config.refuse("mlp_bias", "false: such biases are not implemented");
  if (config.has("quantization_config"))
    config.refuse("its weights are quantised ('quantization_config'); expected f32, f16 or bf16");
  return type;
}

ModelConfig model_config(const Settings& config, const std::string& type, const std::string& path) {
  const config::Geometry g = config::read_geometry(path);
  ModelConfig c{.dim = config.count("hidden_size"),
                .hidden_dim = config.count("intermediate_size"),
                .layers = g.layers,
                .q_heads = g.q_heads,
                .kv_heads = g.kv_heads,
                .vocab_size = config.count("vocab_size"),
                .max_tokens = config.count("max_position_embeddings"),
                .stated_head_dim = g.head_dim,
                .sliding_window = read_window(config, type, g.layers),
                .norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 1e-6)),
                .rope = read_rope(config)};
  if (g.head_dim % 2 != 0)
    config.refuse("a head_dim of " + std::to_string(g.head_dim) +
                  " has no rotary pairs; expected an even number");
  return c;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// All tensors of a folder, whichever file they lie in.
class Shards {
 public:
  explicit Shards(const std::string& folder) : folder_(folder) {
    for (const std::string& name : file_names()) {
      files_.push_back(std::make_unique<io::SafetensorsFile>((fs::path(folder_) / name).string()));
      for (const auto& [tensor_name, tensor] : files_.back()->tensors()) {
        if (!places_.emplace(tensor_name, Place{&files_.back()->path(), &tensor}).second) {
          throw std::invalid_argument("model " + folder_ + ": tensor " + tensor_name + " is in two files, " +
                                      *places_.at(tensor_name).path + " and " + files_.back()->path());
        }
      }
    }
  }

  bool has(const std::string& name) const { return places_.contains(name); }

  // Checked to be there, of this shape, in a type that can be read.
  const io::SafetensorsFile::Tensor& tensor(const std::string& name, std::vector<int64_t> shape) const {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      throw std::invalid_argument("model " + folder_ + ": tensor " + name + " is in none of its " +
                                  std::to_string(files_.size()) +
                                  " .safetensors; its config.json asks for it, " + shape_text(shape));
    }
    const auto refuse = [&](const std::string& what) {
      throw std::invalid_argument("model " + *found->second.path + ": tensor " + name + " " + what);
    };
    const io::SafetensorsFile::Tensor& t = *found->second.tensor;
    if (t.shape != shape) {
      refuse("has the shape " + shape_text(t.shape) + ", expected " + shape_text(shape) +
             " by its config.json");
    }
    if (t.dtype != "F32" && t.dtype != "F16" && t.dtype != "BF16")
      refuse("has the type " + t.dtype + ", expected F32, F16 or BF16");
    return t;
  }

  WeightMatrix matrix(const std::string& name, int64_t rows, int64_t cols) const {
    const io::SafetensorsFile::Tensor& t = tensor(name, {rows, cols});
    using Type = WeightMatrix::Type;
    const Type type = t.dtype == "F32" ? Type::kF32 : t.dtype == "F16" ? Type::kF16 : Type::kBf16;
    return {t.bytes.data(), type, rows, cols};
  }
  std::vector<float> vector(const std::string& name, int64_t size) const {
    std::vector<float> values(static_cast<size_t>(size));
    io::read_f32(tensor(name, {size}), 0, size, values.data());
    return values;
  }

  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [name, place] : places_) sum += static_cast<int64_t>(place.tensor->bytes.size());
    return sum;
  }

 private:
  struct Place {
    const std::string* path;
    const io::SafetensorsFile::Tensor* tensor;
  };

  // Those that the index names; else the one of the usual name; else all.
  std::set<std::string> file_names() const {
    const fs::path index = fs::path(folder_) / "model.safetensors.index.json";
    if (fs::exists(index)) return indexed_names(index.string());
    if (fs::exists(fs::path(folder_) / "model.safetensors")) return {"model.safetensors"};
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".safetensors") names.insert(entry.path().filename().string());
    }
    if (names.empty()) {
      throw std::invalid_argument("model " + folder_ +
                                  ": there is no .safetensors in it; expected the folder of a " +
                                  "Hugging Face model");
    }
    return names;
  }

  static std::set<std::string> indexed_names(const std::string& path) {
    const json index = read_json(path);
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object() || map->empty())
      throw std::invalid_argument(path + ": 'weight_map' must name the file of each tensor");
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) {
      const bool plain = file.is_string() && file.get<std::string>().find('/') == std::string::npos;
      if (!plain)
        throw std::invalid_argument(path + ": the file of " + tensor + " must be a name in this folder");
      names.insert(file.get<std::string>());
    }
    return names;
  }

  std::string folder_;
  std::vector<std::unique_ptr<io::SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
};

struct Biases {
  bool qkv, o;
};

LayerWeights layer_weights(const Shards& shards, const ModelConfig& c, int l, const Biases& biases) {
  const std::string layer = "model.layers." + std::to_string(l) + ".", attention = layer + "self_attn.",
                    mlp = layer + "mlp.";
  const int64_t q = int64_t{c.q_heads} * c.head_dim(), kv = int64_t{c.kv_heads} * c.head_dim();
  const auto bias = [&](bool there, const std::string& name, int64_t size) {
    return there ? shards.vector(attention + name + ".bias", size) : std::vector<float>();
  };
  return {.attention_norm = shards.vector(layer + "input_layernorm.weight", c.dim),
          .ffn_norm = shards.vector(layer + "post_attention_layernorm.weight", c.dim),
          .wq = shards.matrix(attention + "q_proj.weight", q, c.dim),
          .wk = shards.matrix(attention + "k_proj.weight", kv, c.dim),
          .wv = shards.matrix(attention + "v_proj.weight", kv, c.dim),
          .wo = shards.matrix(attention + "o_proj.weight", c.dim, q),
          .bq = bias(biases.qkv, "q_proj", q),
          .bk = bias(biases.qkv, "k_proj", kv),
          .bv = bias(biases.qkv, "v_proj", kv),
          .bo = bias(biases.o, "o_proj", c.dim),
          .gate = shards.matrix(mlp + "gate_proj.weight", c.hidden_dim, c.dim),
          .up = shards.matrix(mlp + "up_proj.weight", c.hidden_dim, c.dim),
          .down = shards.matrix(mlp + "down_proj.weight", c.dim, c.hidden_dim)};
}

}  // namespace

ModelWeights load_hugging_face(const std::string& folder, int64_t memory_bytes) {
  const std::string config_path = (fs::path(folder) / "config.json").string();
  const Settings config(read_json(config_path), config_path);
  const std::string type = check_kind(config);
  const ModelConfig c = model_config(config, type, config_path);
  const auto shards = std::make_shared<const Shards>(folder);
  check_fits(folder, shards->bytes(), memory_bytes);

  ModelWeights weights{.path = folder,
                       .config = c,
                       .embedding = shards->matrix("model.embed_tokens.weight", c.vocab_size, c.dim),
                       .classifier = {},
                       .final_norm = shards->vector("model.norm.weight", c.dim),
                       .layers = {},
                       .files = shards};
  const bool tied = config.flag("tie_word_embeddings", !shards->has("lm_head.weight"));
  weights.classifier = tied ? weights.embedding : shards->matrix("lm_head.weight", c.vocab_size, c.dim);
  const bool bias = config.flag("attention_bias", false);
  const Biases biases{.qkv = bias || type == "qwen2", .o = bias};
  for (int l = 0; l < c.layers; ++l) weights.layers.push_back(layer_weights(*shards, c, l, biases));
  return weights;
}

}  // namespace kv::model
