// A decoder-only model: kvlab runs its own forward pass with any attention, so that caches see real K and V. There is one
// pass for all families; ModelConfig says how they differ.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "variants/core/rope.h"
#include "variants/model_cache/linear_cache.h"
#include "variants/model_cache/model_layer.h"

namespace kv::model {

enum class Norm : uint8_t { kRms, kLayer };                    // RMSNorm; LayerNorm, with biases
enum class Activation : uint8_t { kSilu, kGeluTanh, kRelu2 };  // the feed-forward's; GELU by its tanh formula

struct ModelConfig {
  int dim, hidden_dim, layers, q_heads, kv_heads, vocab_size;
  int max_tokens;           // the context it was trained for
  int stated_head_dim = 0;  // 0: dim / q_heads
  float norm_epsilon = 1e-5f;
  Rope rope{};         // for layers without a window
  Rope window_rope{};  // for those with one

  // Differences between families; the defaults are Llama's.
  std::vector<ModelLayer> kinds{};  // [layers]
  LinearShape linear{};             // for layers of kind "linear"
  Norm norm = Norm::kRms;
  Activation activation = Activation::kSilu;
  bool rotary = true;  // RoPE; else a learned vector a position is added to the embedding
  bool to_halves =
      false;  // q and k leave their products interleaved and are put in halves, for order_in_halves()
  bool gated_heads = false;  // wq has a gate behind each head's query: its sigmoid scales what the head reads
  float embedding_scale = 1.0f;
  float query_scale = 1.0f;   // for queries, beside attention's own 1 / sqrt(head_dim)
  float score_cap = 0.0f;     // soft-capping: a score s becomes cap * tanh(s / cap); 0: none
  float logit_cap = 0.0f;     // likewise, of the logits
  int experts_per_token = 0;  // mixture of experts; 0: one feed-forward for all
  float expert_limit = 0.0f, expert_slope = 0.0f;  // gpt-oss's gate: see feed_forward.cc
  // [layers, q_heads] or empty: learned scores that take part in a head's softmax and have no value (gpt-oss).
  std::vector<float> sink_logits{};

  int head_dim() const { return stated_head_dim > 0 ? stated_head_dim : dim / q_heads; }
  int64_t window(int layer) const { return kinds[static_cast<size_t>(layer)].window; }
  const Rope& rope_of(int layer) const { return window(layer) > 0 ? window_rope : rope; }
  // The order of K's channels in caches: "halves" or "interleaved", by where a rotary pair lies; "" without RoPE.
  std::string_view k_order() const {
    return !rotary ? "" : rope.pairs == RopePairs::kHalfSplit ? "halves" : "interleaved";
  }
  // Whose window it is, for a message: "the model", or if not all layers have one "layer 3 (sliding) of the model".
  std::string viewer(int layer) const;
  // [q_heads], or null.
  const float* sinks(int layer) const {
    return sink_logits.empty() ? nullptr : sink_logits.data() + int64_t{layer} * q_heads;
  }
};

// Who applies RoPE to queries and keys.
enum class Rotary {
  kTrained,  // the model; positions it was not trained for are refused
  kBeyond,   // the model, at any position: RoPE has a value there, but the model was not
             // trained for it
  kCache,    // nobody yet: attention gets q and k before RoPE, to rotate them by their cache positions
};

struct ModelWeights;

// Rows of a product beyond which more of them side by side gain nothing.
inline constexpr int64_t kRowsSideBySide = 512;

class Model {
 public:
  // Attention of one layer over n new tokens: q [q_heads, n, head_dim] and k [kv_heads, n, head_dim] after
  // RoPE (but for Rotary::kCache), v likewise; writes out [q_heads, n, head_dim]. Where RoPE turns a part of a head, its
  // pairs lie as in a head that it turns as a whole. Scores are q k^T / sqrt(head_dim):
  // another scale is in q. Window, soft-capping and sink logits are attention's part.
  using Attention =
      std::function<void(int layer, int64_t n, const float* q, const float* k, const float* v, float* out)>;

  // A linear layer's work on n tokens between its projections: `projected` [n, projected_values()] to out [n,
  // recurrent_out], with the tokens before them in a state that it keeps (linear_rows.h).
  using Recurrence = std::function<void(int layer, int64_t n, const float* projected, float* out)>;

  // Layers behind which a token may have several rows, since caches that share it have answered differently. Both set `out`, to
  // [q_heads, m, head_dim] and [m, recurrent_out], and return which of the layer's n rows each of these m goes on
  // from; nothing: each from its own.
  struct Parting {
    std::function<std::vector<int64_t>(int layer, int64_t n, const float* q, const float* k, const float* v,
                                       std::vector<float>& out)>
        attention;
    std::function<std::vector<int64_t>(int layer, int64_t n, const float* projected, std::vector<float>& out)>
        recurrence;
  };

  // Maps the folder of a Hugging Face model (config.json of a family of family.cc, and .safetensors in f32, f16 or
  // bf16). The weights stay in the files. Throws
  // std::invalid_argument for files that are not what they say, and with the bytes needed if they are more
  // than memory_bytes (0: what the system has).
  explicit Model(const std::string& path, int64_t memory_bytes = 0);
  explicit Model(ModelWeights weights);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;
  const ModelWeights& weights() const;
  // As ModelWeights::multiply_in_bf16, within the memory that the system has.
  void multiply_in_bf16();
  // Attention gets the channels of q and k in halves from now on, whatever order their weights give them. Scores stay the same.
  void order_in_halves();

  // Runs tokens at positions first_position … and returns logits [n, vocab_size]. Throws
  // std::invalid_argument for an id outside the vocabulary, or a position past max_tokens that `rotary`
  // forbids.
  std::vector<float> forward(std::span<const int> tokens, int64_t first_position, const Attention& attention,
                             Rotary rotary = Rotary::kTrained, const Recurrence& recurrence = {}) const;
  // Indices into a step's tokens whose logits are asked for; nothing: those of all.
  using Wanted = std::optional<std::span<const int64_t>>;

  // The same with token i at positions[i]: tokens of several sequences in one pass, which `attention` must
  // know how to distinguish. `rotary`: one for all tokens, or one a token. Returns logits [wanted, vocab_size].
  // std::logic_error where a linear layer has no `recurrence`.
  std::vector<float> forward(std::span<const int> tokens, std::span<const int64_t> positions,
                             const Attention& attention, std::span<const Rotary> rotary, Wanted wanted = {},
                             const Recurrence& recurrence = {}) const;
  // The same; logits are of all rows of the wanted tokens, in the rows' order, [wanted rows, vocab_size].
  std::vector<float> forward(std::span<const int> tokens, std::span<const int64_t> positions,
                             const Parting& layers, std::span<const Rotary> rotary, Wanted wanted = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Causal attention in plain f32 that keeps all K and V itself and sees all of it, or the layer's sliding
// window, with soft-capping and sink logits: what a model is run with when no cache is under test. It serves one sequence from position 0 on;
// copies share what is kept, so a new sequence needs a new one.
Model::Attention full_attention(const ModelConfig& config);
// The states of the model's linear layers, likewise. The model outlives it.
Model::Recurrence full_recurrence(const Model& model);

}  // namespace kv::model
