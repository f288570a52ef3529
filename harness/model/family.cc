#include "harness/model/family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "harness/config/geometry.h"

namespace kv::model {
namespace {

constexpr std::string_view kGemma2 =
    R"({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
  "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "vocab_size": 256000, "max_position_embeddings": 8192,
  "tie_word_embeddings": true})";
constexpr std::string_view kGemma3 =
    R"({"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
  "final_logit_softcapping": null, "vocab_size": 262208, "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
  "tie_word_embeddings": true})";
constexpr std::string_view kGpt2 =
    R"({"hidden_act": "gelu_new", "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
constexpr std::string_view kGptOss =
    R"({"rms_norm_eps": 1e-5, "attention_bias": true, "num_experts_per_tok": 4,
  "swiglu_limit": 7.0, "swiglu_alpha": 1.702, "rope_theta": 150000.0,
  "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
  "original_max_position_embeddings": 4096}})";
constexpr std::string_view kNanochat = R"({"hidden_act": "relu2", "final_logit_softcapping": 15.0})";
constexpr std::string_view kQwen35 = R"({"partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4})";

constexpr std::array kFamilies{
    Family{.type = "llama", .defaults = "{}", .mlp_bias_key = true},
    Family{.type = "mistral", .defaults = "{}", .bias_key = false},
    Family{.type = "qwen2", .defaults = "{}", .qkv_bias = true, .bias_key = false},
    Family{.type = "qwen3", .defaults = "{}", .head_norms = true},
    Family{.type = "gemma2",
           .defaults = kGemma2,
           .norm_offset = true,
           .out_norms = true,
           .scaled_embedding = true},
    Family{.type = "gemma3_text",
           .defaults = kGemma3,
           .norm_offset = true,
           .out_norms = true,
           .head_norms = true,
           .scaled_embedding = true,
           .rope_by_kind = true},
    Family{.type = "gpt2",
           .defaults = kGpt2,
           .feed_forward = FeedForward::kPlain,
           .norm = Norm::kLayer,
           .rotary = false},
    Family{.type = "gpt_oss", .defaults = kGptOss, .feed_forward = FeedForward::kExperts, .sinks = true},
    // A norm without weights behind RoPE is one before it.
    Family{.type = "nanochat",
           .defaults = kNanochat,
           .feed_forward = FeedForward::kPlain,
           .norm_weights = false,
           .embedding_norm = true,
           .head_norms = true,
           .backwards = true},
    Family{.type = "qwen3_5_text",
           .defaults = kQwen35,
           .norm_offset = true,
           .head_norms = true,
           .partial_rotary = true,
           .gated_heads = true,
           .linear_layers = true},
};

// Settings that change what a layer does, in a way that none of the families' released models has.
constexpr std::array kMustBeFalse{"use_bidirectional_attention", "scale_attn_by_inverse_layer_idx",
                                  "add_cross_attention"};

const Family* known_family(const config::ModelSettings& config) {
  const std::string type = config.text("model_type", "");
  const auto* found =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& f) { return f.type == type; });
  return found == kFamilies.end() ? nullptr : found;
}

const Family& find_family(const config::ModelSettings& config) {
  if (const Family* family = known_family(config)) return *family;
  std::string known;
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    known += (i == 0 ? "" : i + 1 < kFamilies.size() ? ", " : " and ") + std::string(kFamilies[i].type);
  }
  config.refuse("model_type '" + config.text("model_type", "") + "' is not implemented; known are " + known);
}

Activation read_activation(const config::ModelSettings& config) {
  const char* key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = config.text(key, "silu");
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "relu2") return Activation::kRelu2;
  config.refuse(key, "\"silu\", \"gelu_pytorch_tanh\", \"gelu_new\" or \"relu2\"");
}

void read_yarn(const config::ModelSettings& rope, bool truncate, Rope& r) {
  r.high = rope.number("beta_fast", 32.0);
  r.low = rope.number("beta_slow", 1.0);
  if (!(r.low < r.high)) rope.refuse("beta_slow", "less than beta_fast");
  r.mix = truncate ? RopeMix::kByWholePair : RopeMix::kByPair;
  const auto amplitude = [&](double scale) {
    return r.factor > 1 ? 0.1 * scale * std::log(r.factor) + 1 : 1.0;
  };
  const bool both = rope.has("mscale") && rope.has("mscale_all_dim");
  r.amplitude =
      both ? amplitude(rope.number("mscale", 1)) / amplitude(rope.number("mscale_all_dim", 1)) : amplitude(1);
  r.amplitude = rope.number("attention_factor", r.amplitude);
}

Rope read_scaling(const config::ModelSettings& config, const Family& family,
                  const config::ModelSettings& rope, Rope r) {
  // Classes with a RoPE for each kind of layers do not read the older name (transformers, Gemma3TextConfig).
  const std::string type =
      rope.text("rope_type", family.rope_by_kind ? "default" : rope.text("type", "default"));
  if (type == "default") return r;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    config.refuse("rotary scaling '" + type +
                  "' is not implemented; known are default, linear, llama3 and yarn");
  }
  if (!rope.has("factor")) rope.refuse("factor", "a positive number, for rotary scaling '" + type + "'");
  r.factor = rope.number("factor", 1.0);
  if (type == "linear") return r;
  // One beside the other keys comes before theirs, and `truncate` counts there alone (transformers, standardize_rope_params).
  const char* trained = "original_max_position_embeddings";
  const bool beside = !family.rope_by_kind && config.has(trained);
  const config::ModelSettings& stated = rope.has(trained) && !beside ? rope : config;
  r.trained_tokens = stated.count(beside || rope.has(trained) ? trained : "max_position_embeddings");
  if (type == "yarn") {
    read_yarn(rope, family.rope_by_kind || rope.flag("truncate", true), r);
    return r;
  }
  r.low = rope.number("low_freq_factor", 1.0);
  r.high = rope.number("high_freq_factor", 4.0);
  if (!(r.low < r.high)) rope.refuse("low_freq_factor", "less than high_freq_factor");
  return r;
}

// The place in a file of the RoPE of the layers of a kind, "full" or "sliding". transformers 5 has it in rope_parameters, in Gemma 3
// once a kind; before, it was rope_scaling, in Gemma 3 for full layers alone. A file with both, as model pages tell users to write
// it, means rope_scaling.
config::ModelSettings rope_settings(const config::ModelSettings& config, const Family& family,
                                    const std::string& kind) {
  const config::ModelSettings newer = config.inner("rope_parameters");
  if (!family.rope_by_kind) return config.is_off("rope_scaling") ? newer : config.inner("rope_scaling");
  if (config.is_off("rope_scaling") || kind == "sliding") return newer.inner(kind + "_attention");
  if (newer.has("full_attention"))
    config.refuse("'rope_parameters' and 'rope_scaling' state the RoPE of full layers; expected one of them");
  return config.inner("rope_scaling");
}

Rope read_rope(const config::ModelSettings& config, const Family& family, const std::string& kind) {
  const config::ModelSettings rope = rope_settings(config, family, kind);
  const char* theta = family.rope_by_kind && kind == "sliding" ? "rope_local_base_freq" : "rope_theta";
  const double part = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (part != 1.0 && !family.partial_rotary)
    config.refuse("'partial_rotary_factor' other than 1 is not implemented");
  const int rotated = part == 1.0 ? 0 : static_cast<int>(part * config.count("head_dim"));
  if (part > 1.0 || (part < 1.0 && (rotated == 0 || rotated % 2 != 0)))
    config.refuse("'partial_rotary_factor' must make an even part of head_dim");
  const bool interleaved = config.flag("rope_interleave", false);
  if (interleaved && rotated > 0)
    config.refuse("rope_interleave", "false where a part of a head is rotated: the other is not implemented");
  const Rope r{.theta = rope.number("rope_theta", config.number(theta, 10000.0)),
               .pairs = interleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit,
               .backwards = family.backwards,
               .rotated = rotated};
  Rope scaled = read_scaling(config, family, rope, r);
  if (!family.norm_weights) scaled.amplitude = 1;  // taken off by the norm behind RoPE
  return scaled;
}

std::vector<ModelLayer> read_layers(const config::ModelSettings& config, const Family& family,
                                    const config::Geometry& g) {
  for (size_t i = 0; i < g.kinds.size(); ++i) {
    if (g.kinds[i].kind == "full" || g.kinds[i].kind == "sliding") continue;
    if (family.linear_layers && g.kinds[i].kind == "linear") {
      for (const char* key : {"linear_num_value_heads", "linear_key_head_dim"}) config.count(key);
      continue;
    }
    config.refuse("layer " + std::to_string(i) + " is of the kind '" + g.kinds[i].kind +
                  "', which no model of this family has; expected full_attention or sliding_attention");
  }
  return g.kinds;
}

void check_settings(const config::ModelSettings& config) {
  for (const char* key : kMustBeFalse) {
    if (config.flag(key, false)) config.refuse(key, "false: the other is not implemented");
  }
  for (const char* key : {"scale_attn_weights", "attn_output_gate"}) {
    if (!config.flag(key, true)) config.refuse(key, "true: the other is not implemented");
  }
  if (config.has("quantization_config"))
    config.refuse("its weights are quantised ('quantization_config'); expected f32, f16 or bf16");
}

void read_family_settings(const config::ModelSettings& config, const Family& family, ModelConfig& c) {
  c.norm = family.norm;
  c.activation = read_activation(config);
  if (family.linear_layers && c.activation != Activation::kSilu)
    config.refuse("hidden_act", "\"silu\": the gate of linear layers has no other");
  c.rotary = family.rotary;
  c.gated_heads = family.gated_heads;
  if (family.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<float>(c.dim));
  // Read where the class has them: Gemma 3's ignores a cap of scores, which is refused there.
  const nlohmann::json own = nlohmann::json::parse(family.defaults);
  const auto number = [&](const char* key, double other) {
    return own.contains(key) ? config.number(key, other) : other;
  };
  c.query_scale = static_cast<float>(std::sqrt(c.head_dim() / number("query_pre_attn_scalar", c.head_dim())));
  c.score_cap = static_cast<float>(number("attn_logit_softcapping", 0));
  c.logit_cap = static_cast<float>(number("final_logit_softcapping", 0));
  if (family.feed_forward != FeedForward::kExperts) return;
  c.experts_per_token = config.count("num_experts_per_tok");
  if (c.experts_per_token > config.count("num_local_experts"))
    config.refuse("num_experts_per_tok", "at most num_local_experts");
  c.expert_limit = static_cast<float>(config.number("swiglu_limit", 0));
  c.expert_slope = static_cast<float>(config.number("swiglu_alpha", 0));
}

}  // namespace

bool is_of_known_family(const std::string& path) {
  return known_family(config::read_model_file(path).settings) != nullptr;
}

HuggingFaceConfig read_hugging_face_config(const std::string& path) {
  config::ModelFile file = config::read_model_file(path);
  config::ModelSettings& config = file.settings;
  const Family& family = find_family(config);
  if (family.type == "gpt2" && config.has("hidden_size") && !config.has("intermediate_size"))
    config.set(4 * int64_t{config.count("hidden_size")}, "intermediate_size");
  config.set_defaults(nlohmann::json::parse(family.defaults));
  check_settings(config);
  const config::Geometry g = config::geometry_of(file);
  ModelConfig c{.dim = config.count("hidden_size"),
                .hidden_dim = config.count("intermediate_size"),
                .layers = g.model_layers,
                .q_heads = g.q_heads,
                .kv_heads = g.kv_heads,
                .vocab_size = config.count("vocab_size"),
                .max_tokens = config.count("max_position_embeddings"),
                .stated_head_dim = g.head_dim,
                .norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 1e-6)),
                .rope = read_rope(config, family, "full"),
                .window_rope = read_rope(config, family, "sliding"),
                .kinds = read_layers(config, family, g),
                .linear = g.linear};
  if (family.rotary && g.head_dim % 2 != 0)
    config.refuse("a head_dim of " + std::to_string(g.head_dim) +
                  " has no rotary pairs; expected an even number");
  read_family_settings(config, family, c);
  return {&family, std::move(config), std::move(c)};
}

}  // namespace kv::model
