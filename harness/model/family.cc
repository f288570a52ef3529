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
  "vocab_size": 262208, "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
  "tie_word_embeddings": true})";
constexpr std::string_view kGpt2 =
    R"({"hidden_act": "gelu_new", "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
constexpr std::string_view kGptOss =
    R"({"rms_norm_eps": 1e-5, "attention_bias": true, "num_experts_per_tok": 4,
  "swiglu_limit": 7.0, "swiglu_alpha": 1.702, "rope_theta": 150000.0})";
constexpr std::string_view kNanochat = R"({"hidden_act": "relu2", "final_logit_softcapping": 15.0})";
constexpr std::string_view kQwen35 = R"({"partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4})";

constexpr std::array kFamilies{
    Family{.type = "llama", .defaults = "{}"},
    Family{.type = "mistral", .defaults = "{}"},
    Family{.type = "qwen2", .defaults = "{}", .qkv_bias = true},
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
           .scaled_embedding = true},
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
constexpr std::array kMustBeFalse{"mlp_bias", "use_bidirectional_attention",
                                  "scale_attn_by_inverse_layer_idx", "add_cross_attention"};

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

void read_yarn(const config::ModelSettings& rope, int max_tokens, Rope& r) {
  r.high = rope.number("beta_fast", 32.0);
  r.low = rope.number("beta_slow", 1.0);
  if (!(r.low < r.high)) rope.refuse("beta_slow", "less than beta_fast");
  const char* key = "original_max_position_embeddings";
  r.trained_tokens = rope.has(key) ? rope.count(key) : max_tokens;
  r.mix = rope.flag("truncate", true) ? RopeMix::kByWholePair : RopeMix::kByPair;
  const auto amplitude = [&](double scale) {
    return r.factor > 1 ? 0.1 * scale * std::log(r.factor) + 1 : 1.0;
  };
  const bool both = rope.has("mscale") && rope.has("mscale_all_dim");
  r.amplitude =
      both ? amplitude(rope.number("mscale", 1)) / amplitude(rope.number("mscale_all_dim", 1)) : amplitude(1);
  r.amplitude = rope.number("attention_factor", r.amplitude);
}

Rope read_scaling(const config::ModelSettings& config, const config::ModelSettings& rope, Rope r) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return r;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    config.refuse("rotary scaling '" + type +
                  "' is not implemented; known are default, linear, llama3 and yarn");
  }
  if (!rope.has("factor")) rope.refuse("factor", "a positive number, for rotary scaling '" + type + "'");
  r.factor = rope.number("factor", 1.0);
  if (type == "yarn") read_yarn(rope, config.count("max_position_embeddings"), r);
  if (type != "llama3") return r;
  r.low = rope.number("low_freq_factor", 1.0);
  r.high = rope.number("high_freq_factor", 4.0);
  r.trained_tokens = rope.count("original_max_position_embeddings");
  if (!(r.low < r.high)) rope.refuse("low_freq_factor", "less than high_freq_factor");
  return r;
}

// RoPE of the layers of a kind, "full" or "sliding". transformers 5 has all of it in rope_parameters, in Gemma 3 once a kind;
// before, theta lay beside rope_scaling, and Gemma 3's sliding layers had rope_local_base_freq and no scaling.
Rope read_rope(const config::ModelSettings& config, const Family& family, const std::string& kind) {
  const bool local = kind == "sliding" && config.has("rope_local_base_freq");
  const double theta =
      local ? config.number("rope_local_base_freq", 0) : config.number("rope_theta", 10000.0);
  const config::ModelSettings all =
      config.inner(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const bool a_kind = all.has("full_attention") || all.has("sliding_attention");
  const config::ModelSettings rope = a_kind ? all.inner(kind + "_attention") : all;
  const double part = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (part != 1.0 && !family.partial_rotary)
    config.refuse("'partial_rotary_factor' other than 1 is not implemented");
  const int rotated = part == 1.0 ? 0 : static_cast<int>(part * config.count("head_dim"));
  if (part > 1.0 || (part < 1.0 && (rotated == 0 || rotated % 2 != 0)))
    config.refuse("'partial_rotary_factor' must make an even part of head_dim");
  const bool interleaved = config.flag("rope_interleave", false);
  if (interleaved && rotated > 0)
    config.refuse("rope_interleave", "false where a part of a head is rotated: the other is not implemented");
  Rope r{.theta = rope.number("rope_theta", theta),
         .pairs = interleaved ? RopePairs::kInterleaved : RopePairs::kHalfSplit,
         .backwards = family.backwards,
         .rotated = rotated};
  if (!local || a_kind) r = read_scaling(config, rope, r);
  if (!family.norm_weights) r.amplitude = 1;  // taken off by the norm behind RoPE
  return r;
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
  c.rotary = family.rotary;
  c.gated_heads = family.gated_heads;
  if (family.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<float>(c.dim));
  const double scalar = config.number("query_pre_attn_scalar", c.head_dim());
  c.query_scale = static_cast<float>(std::sqrt(c.head_dim() / scalar));
  c.score_cap = static_cast<float>(config.number("attn_logit_softcapping", 0));
  c.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 0));
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
