// A llama2.c model: kvlab runs its own forward pass with any attention, so that caches see real post-RoPE K
// and V.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

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

// max_tokens is the length of the file's rotary table, seq_len in llama2.c.
struct ModelConfig {
  int dim, hidden_dim, layers, q_heads, kv_heads, vocab_size, max_tokens;
  int head_dim() const { return dim / q_heads; }
};

class Model {
 public:
  // Attention of one layer over n new tokens: q [q_heads, n, head_dim] and k [kv_heads, n, head_dim] after
  // RoPE, v likewise; writes out [q_heads, n, head_dim].
  using Attention =
      std::function<void(int layer, int64_t n, const float* q, const float* k, const float* v, float* out)>;

  // Maps a llama2.c legacy (v0) file. Throws std::invalid_argument if its size does not fit its header, or a
  // header field is absurd.
  explicit Model(const std::string& path);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;

  // Runs tokens at positions first_position … and returns logits [n, vocab_size]. Throws
  // std::invalid_argument for an id outside the vocabulary or a position past the file's rotary table.
  std::vector<float> forward(std::span<const int> tokens, int64_t first_position,
                             const Attention& attention) const;
  // The same with token i at positions[i]: tokens of several sequences in one pass, which `attention` must
  // know how to tell apart.
  std::vector<float> forward(std::span<const int> tokens, std::span<const int64_t> positions,
                             const Attention& attention) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Full causal attention in plain f32 that keeps all K and V itself: what a model is run with when no cache is
// under test. It serves one sequence from position 0 on; copies share what is kept, so a new sequence needs a
// new one.
Model::Attention full_attention(const ModelConfig& config);

}  // namespace kv
