// A Hugging Face folder: config.json, and weights in one or several .safetensors.
//
// Converted weights have their query and key rows permuted so that rotary pairs are the two halves of a head
// (transformers, convert_llama_weights_to_hf.py), unlike Meta's own files and llama2.c's, and unlike GGUF files of Llama's:
// config.json says `rope_interleave` of folders made of those.
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "harness/io/text.h"
#include "harness/model/tensor_shards.h"
#include "harness/model/tensor_source.h"

namespace kv::model {
namespace {

// Prefixes of tensors' names: a text model's, GPT-2's, saved with its classifier or without, and the text model's inside a
// multimodal one, by older and newer versions of transformers.
constexpr std::array kPrefixes{"model.", "transformer.", "", "language_model.model.",
                               "model.language_model."};

class Loader {
 public:
  Loader(const HuggingFaceConfig& config, TensorSource& tensors)
      : family_(*config.family), settings_(config.settings), c_(config.model), tensors_(tensors) {
    const std::string embedding = family_.rotary ? "embed_tokens.weight" : "wte.weight";
    prefix_ = kPrefixes[family_.rotary ? 0 : 1];
    for (const char* prefix : kPrefixes) {
      if (tensors_.has(prefix_ + embedding)) break;
      if (tensors_.has(prefix + embedding)) prefix_ = prefix;
    }
  }

  void load(ModelWeights& weights) {
    const bool gpt2 = !family_.rotary;
    weights.embedding = matrix(gpt2 ? "wte" : "embed_tokens", c_.vocab_size, c_.dim);
    if (!c_.rotary) weights.positions = matrix("wpe", c_.max_tokens, c_.dim);
    if (family_.embedding_norm) weights.embedding_norm = norm("", c_.dim);
    weights.final_norm = norm(gpt2 ? "ln_f" : "norm", c_.dim);
    if (c_.norm == Norm::kLayer) weights.final_norm_bias = vector("ln_f.bias", {c_.dim});
    const std::string head = head_name();
    const bool says_tied = settings_.flag("tie_word_embeddings", !tensors_.has(head));
    const std::string embedding = prefix_ + (gpt2 ? "wte.weight" : "embed_tokens.weight");
    const bool tied = says_tied && !tensors_.differ(head, embedding);
    if (says_tied && !tied)
      std::fprintf(stderr,
                   "kvlab: %s: tie_word_embeddings is true, and %s differs from the embedding: it is used\n",
                   io::as_message(settings_.path()).c_str(), head.c_str());
    weights.classifier = tied ? weights.embedding : tensors_.matrix(head, c_.vocab_size, c_.dim);
    for (int l = 0; l < c_.layers; ++l) {
      layer_ = (gpt2 ? "h." : "layers.") + std::to_string(l) + ".";
      weights.layers.push_back(gpt2 ? gpt2_layer() : layer(c_.kinds[static_cast<size_t>(l)]));
    }
    if (family_.sinks) weights.config.sink_logits = std::move(sinks_);
  }

 private:
  // The classifier lies beside the text model.
  std::string head_name() const {
    const std::string inside = "language_model.lm_head.weight";
    return tensors_.has(inside) ? inside : "lm_head.weight";
  }

  WeightMatrix matrix(const std::string& name, int64_t rows, int64_t cols) const {
    return tensors_.matrix(prefix_ + name + ".weight", rows, cols);
  }
  std::vector<float> vector(const std::string& name, std::vector<int64_t> shape) const {
    return tensors_.vector(prefix_ + name, std::move(shape));
  }
  std::vector<float> norm(const std::string& name, int64_t size) const {
    if (!family_.norm_weights) return std::vector<float>(static_cast<size_t>(size), 1.0f);
    std::vector<float> weight = vector(name + ".weight", {size});
    if (family_.norm_offset) {
      for (float& x : weight) x += 1.0f;
    }
    return weight;
  }
  std::vector<float> bias(bool there, const std::string& name, int64_t size) const {
    return there ? vector(name + ".bias", {size}) : std::vector<float>();
  }

  LayerWeights layer(const ModelLayer& kind) {
    LayerWeights w{.attention_norm = norm(layer_ + "input_layernorm", c_.dim)};
    if (kind.kind == "linear")
      load_recurrence(layer_ + "linear_attn.", w);
    else
      load_attention(layer_ + "self_attn.", w);
    w.ffn_norm =
        norm(layer_ + (family_.out_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"), c_.dim);
    if (family_.out_norms) {
      w.attention_out_norm = norm(layer_ + "post_attention_layernorm", c_.dim);
      w.ffn_out_norm = norm(layer_ + "post_feedforward_layernorm", c_.dim);
    }
    if (family_.feed_forward == FeedForward::kExperts) {
      load_experts(layer_ + "mlp.", w);
    } else if (family_.feed_forward == FeedForward::kPlain) {
      w.up = matrix(layer_ + "mlp.fc1", c_.hidden_dim, c_.dim);
      w.down = matrix(layer_ + "mlp.fc2", c_.dim, c_.hidden_dim);
    } else {
      const bool biased = family_.mlp_bias_key && settings_.flag("mlp_bias", false);
      w.gate = matrix(layer_ + "mlp.gate_proj", c_.hidden_dim, c_.dim);
      w.up = matrix(layer_ + "mlp.up_proj", c_.hidden_dim, c_.dim);
      w.down = matrix(layer_ + "mlp.down_proj", c_.dim, c_.hidden_dim);
      w.b_gate = bias(biased, layer_ + "mlp.gate_proj", c_.hidden_dim);
      w.b_up = bias(biased, layer_ + "mlp.up_proj", c_.hidden_dim);
      w.b_down = bias(biased, layer_ + "mlp.down_proj", c_.dim);
    }
    return w;
  }

  void load_attention(const std::string& attention, LayerWeights& w) {
    const int64_t q = int64_t{c_.q_heads} * c_.head_dim(), kv = int64_t{c_.kv_heads} * c_.head_dim(),
                  gated = family_.gated_heads ? 2 * q : q;
    const bool all = family_.bias_key && settings_.flag("attention_bias", false),
               qkv = all || family_.qkv_bias;
    w.wq = matrix(attention + "q_proj", gated, c_.dim);
    w.wk = matrix(attention + "k_proj", kv, c_.dim);
    w.wv = matrix(attention + "v_proj", kv, c_.dim);
    w.wo = matrix(attention + "o_proj", c_.dim, q);
    w.bq = bias(qkv, attention + "q_proj", gated);
    w.bk = bias(qkv, attention + "k_proj", kv);
    w.bv = bias(qkv, attention + "v_proj", kv);
    w.bo = bias(all, attention + "o_proj", c_.dim);
    if (family_.head_norms) {
      w.q_norm = norm(attention + "q_norm", c_.head_dim());
      w.k_norm = norm(attention + "k_norm", c_.head_dim());
    }
    if (family_.sinks) {
      const std::vector<float> sinks = vector(attention + "sinks", {c_.q_heads});
      sinks_.insert(sinks_.end(), sinks.begin(), sinks.end());
    }
  }

  // The kernels lie channel by channel, and rates as logarithms.
  void load_recurrence(const std::string& linear, LayerWeights& w) {
    const LinearShape& s = c_.linear;
    const int64_t values = int64_t{s.value_heads} * s.value_dim,
                  channels = 2 * int64_t{s.key_heads} * s.key_dim + values,
                  kernel = settings_.count("linear_conv_kernel_dim");
    w.recurrent_in = {matrix(linear + "in_proj_qkv", channels, c_.dim),
                      matrix(linear + "in_proj_z", values, c_.dim),
                      matrix(linear + "in_proj_b", s.value_heads, c_.dim),
                      matrix(linear + "in_proj_a", s.value_heads, c_.dim)};
    w.recurrent_out = matrix(linear + "out_proj", c_.dim, values);
    const std::vector<float> kernels = vector(linear + "conv1d.weight", {channels, 1, kernel});
    w.convolution.resize(kernels.size());
    for (size_t i = 0; i < kernels.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i);
      w.convolution[static_cast<size_t>(at % kernel * channels + at / kernel)] = kernels[i];
    }
    w.decay_rate = vector(linear + "A_log", {s.value_heads});
    for (float& rate : w.decay_rate) rate = std::exp(rate);
    w.decay_bias = vector(linear + "dt_bias", {s.value_heads});
    w.state_norm = vector(linear + "norm.weight", {s.value_dim});
  }

  // gpt-oss multiplies from the right, all experts in one tensor, and gate and up alternate in its columns.
  void load_experts(const std::string& mlp, LayerWeights& w) {
    const int64_t count = settings_.count("num_local_experts"), hidden = c_.hidden_dim;
    w.router = matrix(mlp + "router", count, c_.dim);
    w.b_router = vector(mlp + "router.bias", {count});
    const std::string experts = mlp + "experts.";
    const std::vector<float> both = vector(experts + "gate_up_proj_bias", {count, 2 * hidden});
    const std::vector<float> down = vector(experts + "down_proj_bias", {count, c_.dim});
    for (int64_t e = 0; e < count; ++e) {
      const auto alternating = [&](int64_t first) {
        return tensors_.transposed(prefix_ + experts + "gate_up_proj",
                                   {{count, c_.dim, 2 * hidden}, e, first, 2, hidden});
      };
      ExpertWeights& expert = w.experts.emplace_back();
      expert.gate = alternating(0);
      expert.up = alternating(1);
      expert.down =
          tensors_.transposed(prefix_ + experts + "down_proj", {{count, hidden, c_.dim}, e, 0, 1, c_.dim});
      for (int64_t i = 0; i < hidden; ++i) {
        expert.b_gate.push_back(both[static_cast<size_t>(2 * (e * hidden + i))]);
        expert.b_up.push_back(both[static_cast<size_t>(2 * (e * hidden + i) + 1)]);
      }
      expert.b_down.assign(down.begin() + e * c_.dim, down.begin() + (e + 1) * c_.dim);
    }
  }

  // GPT-2's matrices multiply from the right, too, and q, k and v are one.
  LayerWeights gpt2_layer() {
    const auto columns = [&](const std::string& name, int64_t in, int64_t out, int64_t first, int64_t n) {
      return tensors_.transposed(prefix_ + layer_ + name + ".weight", {{in, out}, 0, first, 1, n});
    };
    const int64_t dim = c_.dim;
    const std::vector<float> qkv = vector(layer_ + "attn.c_attn.bias", {3 * dim});
    const auto third = [&](int64_t i) {
      return std::vector<float>(qkv.begin() + i * dim, qkv.begin() + (i + 1) * dim);
    };
    return {.attention_norm = norm(layer_ + "ln_1", dim),
            .ffn_norm = norm(layer_ + "ln_2", dim),
            .attention_norm_bias = vector(layer_ + "ln_1.bias", {dim}),
            .ffn_norm_bias = vector(layer_ + "ln_2.bias", {dim}),
            .wq = columns("attn.c_attn", dim, 3 * dim, 0, dim),
            .wk = columns("attn.c_attn", dim, 3 * dim, dim, dim),
            .wv = columns("attn.c_attn", dim, 3 * dim, 2 * dim, dim),
            .wo = columns("attn.c_proj", dim, dim, 0, dim),
            .bq = third(0),
            .bk = third(1),
            .bv = third(2),
            .bo = vector(layer_ + "attn.c_proj.bias", {dim}),
            .up = columns("mlp.c_fc", dim, c_.hidden_dim, 0, c_.hidden_dim),
            .down = columns("mlp.c_proj", c_.hidden_dim, dim, 0, dim),
            .b_up = vector(layer_ + "mlp.c_fc.bias", {c_.hidden_dim}),
            .b_down = vector(layer_ + "mlp.c_proj.bias", {dim})};
  }

  const Family& family_;
  const config::ModelSettings& settings_;
  const ModelConfig& c_;
  TensorSource& tensors_;
  std::string prefix_, layer_;
  std::vector<float> sinks_;
};

}  // namespace

ModelWeights load_tensors(const HuggingFaceConfig& config, TensorSource& tensors) {
  ModelWeights weights{.path = {},
                       .config = config.model,
                       .embedding = {},
                       .classifier = {},
                       .final_norm = {},
                       .layers = {},
                       .files = {}};
  Loader(config, tensors).load(weights);
  return weights;
}

ModelWeights load_hugging_face(const std::string& folder, int64_t memory_bytes) {
  const HuggingFaceConfig config =
      read_hugging_face_config((std::filesystem::path(folder) / "config.json").string());
  const auto shards = std::make_shared<Shards>(folder);
  check_fits(folder, shards->bytes(), memory_bytes);
  ModelWeights weights = load_tensors(config, *shards);
  config.settings.refuse_unread();
  shards->refuse_unread();
  weights.path = folder;
  weights.files = shards;
  return weights;
}

}  // namespace kv::model
