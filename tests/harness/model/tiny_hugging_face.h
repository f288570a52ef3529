// Small Hugging Face folders with random weights, for tests: config.json and .safetensors, written with
// nothing of kvlab's, and the same weights as doubles.
#pragma once

#include <Eigen/Core>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/harness/model/model_support.h"

namespace kv::test {

struct TinyTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;  // rounded to the file's type
};

struct TinyHuggingFace {
  std::string dtype = "F32";
  int shards = 1;
  nlohmann::json config;
  std::map<std::string, TinyTensor> tensors;

  // `changes` are set in a config of GQA with a head_dim of its own; the tensors are those it asks for.
  explicit TinyHuggingFace(const nlohmann::json& changes = {}, std::string type = "F32", int files = 1)
      : dtype(std::move(type)),
        shards(files),
        config{{"model_type", "llama"},
               {"hidden_size", 24},
               {"intermediate_size", 20},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"head_dim", 8},
               {"vocab_size", 13},
               {"max_position_embeddings", 40},
               {"rms_norm_eps", 1e-6},
               {"rope_theta", 500.0},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", false}} {
    if (!changes.is_null()) config.update(changes);
    fill();
  }

  int number(const char* key) const { return config.at(key).get<int>(); }
  int head_dim() const {
    return config.contains("head_dim") && !config["head_dim"].is_null()
               ? number("head_dim")
               : number("hidden_size") / number("num_attention_heads");
  }
  bool has_mlp_bias() const { return config.value("mlp_bias", false); }
  bool has_qkv_bias() const {
    return config["model_type"] == "qwen2" || config.value("attention_bias", false);
  }

  void write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << config.dump(1);
    std::vector<std::map<std::string, TinyTensor>> parts(static_cast<size_t>(shards));
    size_t next = 0;
    nlohmann::json index;
    for (const auto& [name, tensor] : tensors) {
      const size_t part = next++ % parts.size();
      parts[part].emplace(name, tensor);
      index["weight_map"][name] = file_name(part);
    }
    for (size_t i = 0; i < parts.size(); ++i)
      std::ofstream(folder / file_name(i), std::ios::binary) << safetensors(parts[i]);
    if (shards > 1) std::ofstream(folder / "model.safetensors.index.json") << index.dump();
  }

  std::string file_name(size_t part) const {
    if (shards == 1) return "model.safetensors";
    return "model-" + std::to_string(part + 1) + "-of-" + std::to_string(shards) + ".safetensors";
  }

 private:
  void fill() {
    const int64_t dim = number("hidden_size"), hidden = number("intermediate_size"),
                  vocab = number("vocab_size");
    const int64_t q = number("num_attention_heads") * head_dim(),
                  kv = number("num_key_value_heads") * head_dim();
    add("model.embed_tokens.weight", {vocab, dim}, 0, 1);
    for (int l = 0; l < number("num_hidden_layers"); ++l) {
      const std::string layer = "model.layers." + std::to_string(l) + ".";
      add(layer + "input_layernorm.weight", {dim}, 1, 0.5);
      add(layer + "post_attention_layernorm.weight", {dim}, 1, 0.5);
      add(layer + "self_attn.q_proj.weight", {q, dim}, 0, 0.4);
      add(layer + "self_attn.k_proj.weight", {kv, dim}, 0, 0.4);
      add(layer + "self_attn.v_proj.weight", {kv, dim}, 0, 0.4);
      add(layer + "self_attn.o_proj.weight", {dim, q}, 0, 0.4);
      add(layer + "mlp.gate_proj.weight", {hidden, dim}, 0, 0.3);
      add(layer + "mlp.up_proj.weight", {hidden, dim}, 0, 0.3);
      add(layer + "mlp.down_proj.weight", {dim, hidden}, 0, 0.3);
      if (has_mlp_bias()) {
        add(layer + "mlp.gate_proj.bias", {hidden}, 0, 1);
        add(layer + "mlp.up_proj.bias", {hidden}, 0, 1);
        add(layer + "mlp.down_proj.bias", {dim}, 0, 1);
      }
      if (!has_qkv_bias()) continue;
      add(layer + "self_attn.q_proj.bias", {q}, 0, 1);
      add(layer + "self_attn.k_proj.bias", {kv}, 0, 1);
      add(layer + "self_attn.v_proj.bias", {kv}, 0, 1);
      if (config.value("attention_bias", false)) add(layer + "self_attn.o_proj.bias", {dim}, 0, 1);
    }
    add("model.norm.weight", {dim}, 1, 0.5);
    if (!config["tie_word_embeddings"].get<bool>()) add("lm_head.weight", {vocab, dim}, 0, 1);
  }

  void add(const std::string& name, std::vector<int64_t> shape, double centre, double spread) {
    TinyTensor tensor{std::move(shape), {}};
    int64_t n = 1;
    for (const int64_t size : tensor.shape) n *= size;
    for (int64_t i = 0; i < n; ++i)
      tensor.values.push_back(rounded(centre + spread * (bits_() / 2147483648.0 - 1.0)));
    tensors[name] = std::move(tensor);
  }

  double rounded(double x) const {
    if (dtype == "F16") return static_cast<float>(Eigen::half(static_cast<float>(x)));
    if (dtype == "BF16") return static_cast<float>(Eigen::bfloat16(static_cast<float>(x)));
    return static_cast<float>(x);
  }

  void append(std::string& bytes, double x) const {
    const float wide = static_cast<float>(x);
    const Eigen::half half(wide);
    const Eigen::bfloat16 brain(wide);
    if (dtype == "F16") append_raw(bytes, &half, 1);
    if (dtype == "BF16") append_raw(bytes, &brain, 1);
    if (dtype == "F32") append_raw(bytes, &wide, 1);
  }

  std::string safetensors(const std::map<std::string, TinyTensor>& part) const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : part) {
      const size_t begin = data.size();
      for (const double x : tensor.values) append(data, x);
      header[name] = {{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();  // its length is arbitrary: f32 data may lie at any address
    const uint64_t length = text.size();
    std::string bytes;
    append_raw(bytes, &length, 1);
    return bytes + text + data;
  }

  std::mt19937 bits_{5};
};

struct TinySizes {
  int dim = 16, hidden = 20, layers = 2, q_heads = 4, kv_heads = 2, vocab = 11, seq_len = 9;
};

// The folder of a Llama of such sizes.
class TinyModel {
 public:
  explicit TinyModel(const TinySizes& s = {}) {
    TinyHuggingFace({{"hidden_size", s.dim},
                     {"intermediate_size", s.hidden},
                     {"num_hidden_layers", s.layers},
                     {"num_attention_heads", s.q_heads},
                     {"num_key_value_heads", s.kv_heads},
                     {"head_dim", nullptr},
                     {"vocab_size", s.vocab},
                     {"max_position_embeddings", s.seq_len},
                     {"rms_norm_eps", 1e-5},
                     {"rope_theta", 1e4},
                     {"tie_word_embeddings", true}})
        .write(folder_.path());
  }
  std::string path() const { return folder_.path().string(); }

 private:
  const TempFolder folder_;
};

}  // namespace kv::test
