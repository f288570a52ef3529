#include "harness/config/parameter_count.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "harness/config/model_types.h"

namespace kv::config {
namespace {

using nlohmann::json;

// Properties of a family that its class fixes and its files omit.
struct Family {
  std::string_view type;
  bool tied;  // tie_word_embeddings if the file omits it
  int norms;  // norms of the hidden size, in a layer
  bool qkv_bias = false, head_norms = false, router_bias = false;
};

constexpr std::array kFamilies{
    Family{"llama", false, 2},
    Family{"mistral", false, 2},
    Family{"mixtral", false, 2},
    Family{"qwen2", false, 2, true},
    Family{"qwen2_moe", false, 2, true},
    Family{"qwen3", false, 2, false, true},
    Family{"qwen3_moe", false, 2, false, true},
    Family{"gemma", true, 2},
    Family{"gemma2", true, 4},
    Family{"gemma3_text", true, 4, false, true},
    Family{"phi3", false, 2},
    Family{"smollm3", true, 2},
    Family{"deepseek_v2", false, 2},
    Family{"deepseek_v3", false, 2, false, false, true},
};

// Sums are floating point, exact up to 2^53 and free of overflow: the file may say anything.
class Count {
 public:
  Count(const json& config, const Family& family) : config_(config), family_(family) {}

  double of_model() {
    const double layers = std::min(need("num_hidden_layers"), 10'000.0);
    double total =
        hidden() + need("vocab_size") * hidden() * (flag("tie_word_embeddings", family_.tied) ? 1 : 2);
    for (int layer = 0; layer < layers; ++layer)
      total += attention() + family_.norms * hidden() +
               (is_sparse(layer) ? experts() : mlp(need("intermediate_size")));
    return known_ ? total : 0;
  }

 private:
  bool has(const char* key) const { return config_.contains(key) && !config_[key].is_null(); }
  bool flag(const char* key, bool fallback) const {
    return has(key) && config_[key].is_boolean() ? config_[key].get<bool>() : fallback;
  }
  // An integer of at least 0; anything else makes the count unknown.
  double need(const char* key) {
    if (has(key) && config_[key].is_number_integer() && config_[key].get<int64_t>() >= 0)
      return config_[key].get<double>();
    known_ = false;
    return 0;
  }
  double get(const char* key, double fallback) { return has(key) ? need(key) : fallback; }
  double hidden() { return need("hidden_size"); }

  double attention() {
    if (has("kv_lora_rank")) return latent_attention();
    const double q = need("num_attention_heads"), kv = get("num_key_value_heads", q),
                 dim = get("head_dim", q > 0 ? hidden() / q : 0);
    const bool all_biases = flag("attention_bias", false);
    return hidden() * dim * (2 * q + 2 * kv) + (family_.qkv_bias || all_biases ? (q + 2 * kv) * dim : 0) +
           (all_biases && !family_.qkv_bias ? hidden() : 0) + (family_.head_norms ? 2 * dim : 0);
  }

  // MLA: q, k and v pass through low ranks, each with a norm; RoPE has dimensions of its own.
  double latent_attention() {
    const double heads = need("num_attention_heads"), rank = need("kv_lora_rank"),
                 rope = need("qk_rope_head_dim"), nope = need("qk_nope_head_dim"), v = need("v_head_dim"),
                 q_width = heads * (nope + rope), q_rank = get("q_lora_rank", 0);
    const double q = q_rank > 0 ? hidden() * q_rank + q_rank + q_rank * q_width : hidden() * q_width;
    return q + hidden() * (rank + rope) + rank + rank * heads * (nope + v) + heads * v * hidden();
  }

  double mlp(double width) {
    return 3 * hidden() * width + (flag("mlp_bias", false) ? 2 * width + hidden() : 0);
  }

  const char* experts_key() const {
    for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"})
      if (has(key)) return key;
    return nullptr;
  }

  bool is_sparse(int layer) {
    if (!experts_key() || layer < get("first_k_dense_replace", 0)) return false;
    const double every = get("decoder_sparse_step", 1);
    if (every < 1 || every > 10'000 || (layer + 1) % static_cast<int64_t>(every) != 0) return false;
    return !has("mlp_only_layers") ||
           std::find(config_["mlp_only_layers"].begin(), config_["mlp_only_layers"].end(), layer) ==
               config_["mlp_only_layers"].end();
  }

  // Routed and shared experts, and the router.
  double experts() {
    const double routed = need(experts_key()),
                 width =
                     has("moe_intermediate_size") ? need("moe_intermediate_size") : need("intermediate_size"),
                 gated = get("shared_expert_intermediate_size", 0), shared = get("n_shared_experts", 0);
    return routed * (mlp(width) + hidden() + (family_.router_bias ? 1 : 0)) +
           (shared > 0 ? mlp(width * shared) : 0) + (gated > 0 ? mlp(gated) + hidden() : 0);
  }

  const json& config_;
  const Family& family_;
  bool known_ = true;
};

// Families whose MLP has no gate, and families whose classifier is the embedding by default.
constexpr std::array<std::string_view, 3> kUngated{"gpt2", "falcon", "phi"};
constexpr std::array<std::string_view, 6> kTied{"gemma",   "gemma2", "gemma3_text",
                                                "smollm3", "gpt2",   "falcon"};
constexpr std::array kExperts{"num_local_experts", "num_experts", "n_routed_experts"};

template <size_t n>
bool among(const std::array<std::string_view, n>& families, const ModelSettings& file) {
  return std::find(families.begin(), families.end(), file.text("model_type", "")) != families.end();
}

}  // namespace

int64_t count_parameters(const json& config) {
  const json type = config.value("model_type", json());
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& f) { return type == std::string(f.type); });
  if (family == kFamilies.end()) return 0;
  const double count = Count(config, *family).of_model();
  constexpr double kMost = static_cast<double>(int64_t{1} << 50);
  return count <= kMost ? static_cast<int64_t>(count) : 0;
}

WeightShapes read_weight_shapes(const std::string& path) {
  const ModelSettings file = read_model_file(path).settings;
  for (const char* key : kExperts) {
    if (file.has(key))
      file.refuse("'" + std::string(key) +
                  "': random weights are for dense models, but this one has experts");
  }
  WeightShapes s{.hidden = file.count("hidden_size"),
                 .intermediate = file.count("intermediate_size"),
                 .vocab = file.count("vocab_size"),
                 .gated = !among(kUngated, file),
                 .tied = file.flag("tie_word_embeddings", among(kTied, file))};
  if (!file.has("linear_num_value_heads")) return s;
  const int64_t keys = int64_t{file.count("linear_num_key_heads")} * file.count("linear_key_head_dim"),
                values = int64_t{file.count("linear_num_value_heads")} * file.count("linear_value_head_dim");
  s.recurrent_out = values;
  s.convolved = 2 * keys + values;
  s.convolution_kernel =
      file.has("linear_conv_kernel_dim") ? file.count("linear_conv_kernel_dim") : 4;  // Qwen3-Next's
  return s;
}

}  // namespace kv::config
