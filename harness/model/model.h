// A model of the Llama family: kvlab runs its own forward pass with any attention, so that caches see real K
// and V.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "variants/core/rope.h"

namespace kv::model {

// llama2.c's tokenizer.bin: BPE pieces with scores, byte fallback where the file has the 256 byte pieces.
class Tokenizer {
 public:
  static constexpr int kUnknown = 0, kBos = 1, kEos = 2;

  // `vocab_size` comes from the model. Throws std::invalid_argument: one line with what, where, what would be
  // right.
  Tokenizer(const std::string& path, int vocab_size);
  // BOS, then the text as if a space stood before it, as llama2.c does; an empty text is BOS alone. O(n log
  // n).
  std::vector<int> encode(std::string_view text) const;
  // BOS and EOS are not printed, and the piece after a BOS loses its leading space, so decode(encode(text))
  // == text where the file has byte pieces. Throws std::invalid_argument for an id outside the vocabulary.
  std::string decode(std::span<const int> ids) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

struct ModelConfig {
  int dim, hidden_dim, layers, q_heads, kv_heads, vocab_size;
  int max_tokens;              // the context it was trained for: llama2.c's seq_len
  int stated_head_dim = 0;     // 0: dim / q_heads
  int64_t sliding_window = 0;  // tokens that a query sees, its own included; 0: all before it
  float norm_epsilon = 1e-5f;
  Rope rope{};
  int head_dim() const { return stated_head_dim > 0 ? stated_head_dim : dim / q_heads; }
};

// Who applies RoPE to queries and keys.
enum class Rotary {
  kTrained,  // the model; positions it was not trained for are refused
  kBeyond,   // the model, at any position: RoPE has a value there, but what the model makes of it nobody
             // promised
  kCache,    // nobody yet: attention gets q and k before RoPE, to rotate them by their cache positions
};

struct ModelWeights;

class Model {
 public:
  // Attention of one layer over n new tokens: q [q_heads, n, head_dim] and k [kv_heads, n, head_dim] after
  // RoPE (but for Rotary::kCache), v likewise; writes out [q_heads, n, head_dim].
  using Attention =
      std::function<void(int layer, int64_t n, const float* q, const float* k, const float* v, float* out)>;

  // Maps a llama2.c legacy (v0) file, or the folder of a Hugging Face model (Llama, Mistral or Qwen2:
  // config.json and .safetensors in f32, f16 or bf16). The weights stay in the files. Throws
  // std::invalid_argument for files that are not what they say, and with the bytes needed if they are more
  // than memory_bytes (0: what the system has).
  explicit Model(const std::string& path, int64_t memory_bytes = 0);
  explicit Model(ModelWeights weights);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;
  const ModelWeights& weights() const;

  // Runs tokens at positions first_position … and returns logits [n, vocab_size]. Throws
  // std::invalid_argument for an id outside the vocabulary, or a position past max_tokens that `rotary`
  // forbids.
  std::vector<float> forward(std::span<const int> tokens, int64_t first_position, const Attention& attention,
                             Rotary rotary = Rotary::kTrained) const;
  // The same with token i at positions[i]: tokens of several sequences in one pass, which `attention` must
  // know how to distinguish.
  std::vector<float> forward(std::span<const int> tokens, std::span<const int64_t> positions,
                             const Attention& attention, Rotary rotary = Rotary::kTrained) const {
    return forward(tokens, positions, attention, rotary, 1);
  }
  // Only the last of each `of` tokens gets its logits, [n / of, vocab_size]: all that follows a prompt.
  std::vector<float> forward(std::span<const int> tokens, std::span<const int64_t> positions,
                             const Attention& attention, Rotary rotary, int64_t of) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Causal attention in plain f32 that keeps all K and V itself and sees all of it, or the model's sliding
// window: what a model is run with when no cache is under test. It serves one sequence from position 0 on;
// copies share what is kept, so a new sequence needs a new one.
Model::Attention full_attention(const ModelConfig& config);

}  // namespace kv::model
