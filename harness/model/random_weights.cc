#include "harness/model/random_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "harness/config/parameter_count.h"
#include "harness/math/random.h"
#include "harness/memory/ledger.h"
#include "harness/model/tensor_source.h"
#include "variants/model_cache/resolve.h"

namespace kv::model {
namespace {

using Type = WeightMatrix::Type;

// All matrices lie in one block, as in a file.
struct Storage {
  explicit Storage(int64_t bytes) : block(ledger, static_cast<size_t>(bytes), ByteKind::kPayload) {}
  memory::Ledger ledger;
  Block block;
};

// Numbers of [scale, 2 scale) with random signs, `scale` a power of two: random bits need no arithmetic to become one.
// With about 1 / sqrt(cols) no activation grows beyond bounds.
void fill(std::byte* to, Type type, int64_t rows, int64_t cols, uint64_t key) {
  const double scale = std::exp2(std::floor(std::log2(0.65 / std::sqrt(static_cast<double>(cols)))));
  const uint32_t exponent = std::bit_cast<uint32_t>(static_cast<float>(scale));
  constexpr uint32_t kSignAndMantissa = 0x807fffff;
  const int64_t size = type == Type::kF32 ? 4 : 2, in_word = 8 / size, words = rows * cols / in_word;
  const uint64_t ones =
      type == Type::kF32 ? exponent * 0x0000000100000001u : (exponent >> 16) * 0x0001000100010001u;
  const uint64_t mask = type == Type::kF32 ? kSignAndMantissa * 0x0000000100000001u
                                           : uint64_t{kSignAndMantissa >> 16} * 0x0001000100010001u;
  const auto word = [&](int64_t i) {
    return (math::random::bits(key, static_cast<uint64_t>(i)) & mask) | ones;
  };
#pragma omp parallel for
  for (int64_t i = 0; i < words; ++i) {
    const uint64_t value = word(i);
    std::memcpy(to + 8 * i, &value, sizeof value);
  }
  const uint64_t last = word(words);
  std::memcpy(to + 8 * words, &last, static_cast<size_t>(rows * cols * size - 8 * words));
}

// Between a linear layer's projections. Decays of 0.5 to 0.98 a token, so that states neither vanish nor grow.
void fill_recurrence(const LinearShape& linear, uint64_t key, LayerWeights& layer) {
  const int64_t channels =
      2 * int64_t{linear.key_heads} * linear.key_dim + int64_t{linear.value_heads} * linear.value_dim;
  math::random::fill_normal(key, layer.convolution);
  for (float& x : layer.convolution)
    x /= std::sqrt(static_cast<float>(std::ssize(layer.convolution) / channels));
  layer.decay_rate.clear();
  for (int head = 0; head < linear.value_heads; ++head)
    layer.decay_rate.push_back(std::ldexp(0.03f, head % 6));
  layer.decay_bias.assign(static_cast<size_t>(linear.value_heads), 0.0f);
  layer.state_norm.assign(static_cast<size_t>(linear.value_dim), 1.0f);
}

// Matrices side by side from `data` on. Without `data` only their bytes are counted.
class RandomTensors : public TensorSource {
 public:
  // `norm` is what norms' weights are.
  RandomTensors(std::byte* data, Type type, uint64_t seed, float norm = 1)
      : data_(data), type_(type), seed_(seed), norm_(norm) {}

  int64_t bytes() const { return bytes_; }
  uint64_t next_key() const { return math::random::key({seed_, static_cast<uint64_t>(bytes_)}); }

  WeightMatrix matrix(int64_t rows, int64_t cols) {
    if (rows == 0) return {};
    std::byte* at = data_ ? data_ + bytes_ : nullptr;
    const WeightMatrix m(at, type_, rows, cols);
    if (at) fill(at, type_, rows, cols, next_key());
    bytes_ += (m.bytes() + 63) / 64 * 64;
    return m;
  }

  bool has(const std::string&) const override { return true; }
  bool differ(const std::string&, const std::string&) override { return false; }
  WeightMatrix matrix(const std::string&, int64_t rows, int64_t cols) override { return matrix(rows, cols); }
  WeightMatrix transposed(const std::string&, const Columns& columns) override {
    return matrix(columns.n, columns.shape[columns.shape.size() - 2]);
  }
  // Norms have one weight an output; biases and sink logits are 0.
  std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape) override {
    const bool is_norm = name.ends_with(".weight");
    if (is_norm && !data_) return {};  // all norms of a model that does not fit can be gigabytes
    const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    return std::vector<float>(static_cast<size_t>(size), is_norm ? norm_ : 0.0f);
  }

 private:
  std::byte* data_;
  Type type_;
  uint64_t seed_;
  float norm_;
  int64_t bytes_ = 0;
};

// A model of a type that is not one of family.h: Llama's layers, and layers of gated DeltaNet.
class LlamaLayers {
 public:
  explicit LlamaLayers(const config::Geometry& g) : g_(g), s_(config::read_weight_shapes(g.path)) {}

  ModelWeights lay_out(RandomTensors& tensors) const {
    const std::vector<float> ones(static_cast<size_t>(s_.hidden), 1.0f);
    ModelWeights w{.path = {},
                   .config = config(),
                   .embedding = tensors.matrix(s_.vocab, s_.hidden),
                   .classifier = {},
                   .final_norm = ones,
                   .layers = {},
                   .files = {}};
    w.classifier = s_.tied ? w.embedding : tensors.matrix(s_.vocab, s_.hidden);
    const int64_t q = int64_t{g_.q_heads} * g_.head_dim, kv = int64_t{g_.kv_heads} * g_.head_dim,
                  value_heads = g_.linear.value_heads;
    for (int64_t l = 0; l < g_.model_layers; ++l) {
      LayerWeights& layer = w.layers.emplace_back();
      layer.attention_norm = layer.ffn_norm = ones;
      if (keeps_rows(g_.kinds[static_cast<size_t>(l)])) {
        layer.wq = tensors.matrix(q, s_.hidden);
        layer.wk = tensors.matrix(kv, s_.hidden);
        layer.wv = tensors.matrix(kv, s_.hidden);
        layer.wo = tensors.matrix(s_.hidden, q);
      } else {
        for (size_t i = 0; i < layer.recurrent_in.size(); ++i)
          layer.recurrent_in[i] = tensors.matrix(
              std::array{s_.convolved, s_.recurrent_out, value_heads, value_heads}[i], s_.hidden);
        layer.recurrent_out = tensors.matrix(s_.hidden, s_.recurrent_out);
        layer.convolution.resize(static_cast<size_t>(s_.convolved * s_.convolution_kernel));
        fill_recurrence(g_.linear, math::random::key({tensors.next_key(), 1}), layer);
      }
      layer.gate = tensors.matrix(s_.gated ? s_.intermediate : 0, s_.hidden);
      layer.up = tensors.matrix(s_.intermediate, s_.hidden);
      layer.down = tensors.matrix(s_.hidden, s_.intermediate);
    }
    return w;
  }

 private:
  ModelConfig config() const {
    const auto refuse = [&](const std::string& what) { throw std::invalid_argument(g_.path + ": " + what); };
    const auto unknown = std::count_if(g_.kinds.begin(), g_.kinds.end(), [&](const ModelLayer& layer) {
      return layer.shares >= 0 || (!keeps_rows(layer) && (!is_linear(layer) || s_.recurrent_out == 0));
    });
    if (unknown > 0)
      refuse("'linear_num_value_heads' is missing: " + std::to_string(unknown) +
             " layers keep no K and V, and their weights are unknown");
    return {.dim = static_cast<int>(s_.hidden),
            .hidden_dim = static_cast<int>(s_.intermediate),
            .layers = g_.model_layers,
            .q_heads = g_.q_heads,
            .kv_heads = g_.kv_heads,
            .vocab_size = static_cast<int>(s_.vocab),
            .max_tokens = static_cast<int>(g_.max_positions > 0 ? g_.max_positions : 1 << 24),
            .stated_head_dim = g_.head_dim,
            .rope = {.pairs = RopePairs::kHalfSplit},
            .window_rope = {.pairs = RopePairs::kHalfSplit},
            .kinds = g_.kinds,
            .linear = g_.linear};
  }

  const config::Geometry& g_;
  const config::WeightShapes s_;
};

// Laid out twice: once to count the bytes, and in their block. `lay_out` takes where the tensors begin.
ModelWeights in_a_block(const std::string& name, int64_t memory_bytes,
                        const std::function<std::pair<ModelWeights, int64_t>(std::byte*)>& lay_out) {
  const int64_t bytes = lay_out(nullptr).second;
  check_fits(name, bytes, memory_bytes);
  const auto storage = std::make_shared<Storage>(bytes);
  ModelWeights weights = lay_out(storage->block.data()).first;
  weights.path = name;
  weights.files = storage;
  return weights;
}

}  // namespace

ModelWeights random_weights(const config::Geometry& geometry, WeightMatrix::Type type, uint64_t seed,
                            int64_t memory_bytes) {
  const std::string name = "random weights of " + geometry.name;
  if (is_of_known_family(geometry.path)) {
    const HuggingFaceConfig config = read_hugging_face_config(geometry.path);
    const float norm = config.family->norm_offset ? 0.0f : 1.0f;
    return in_a_block(name, memory_bytes, [&](std::byte* data) {
      RandomTensors tensors(data, type, seed, norm);
      ModelWeights weights = load_tensors(config, tensors);
      for (LayerWeights& layer : weights.layers) {
        if (!layer.convolution.empty())
          fill_recurrence(geometry.linear, math::random::key({tensors.next_key(), 1}), layer);
      }
      return std::pair(std::move(weights), tensors.bytes());
    });
  }
  const LlamaLayers layers(geometry);
  return in_a_block(name, memory_bytes, [&](std::byte* data) {
    RandomTensors tensors(data, type, seed);
    ModelWeights weights = layers.lay_out(tensors);
    return std::pair(std::move(weights), tensors.bytes());
  });
}

}  // namespace kv::model
