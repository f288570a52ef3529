#include "harness/model/random_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "harness/config/weight_shapes.h"
#include "harness/math/random.h"
#include "harness/memory/ledger.h"
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
void fill_recurrence(const config::WeightShapes& s, const LinearShape& linear, uint64_t key,
                     LayerWeights& layer) {
  layer.convolution.resize(static_cast<size_t>(s.convolved * s.convolution_kernel));
  math::random::fill_normal(key, layer.convolution);
  for (float& x : layer.convolution) x /= std::sqrt(static_cast<float>(s.convolution_kernel));
  for (int head = 0; head < linear.value_heads; ++head)
    layer.decay_rate.push_back(std::ldexp(0.03f, head % 6));
  layer.decay_bias.assign(static_cast<size_t>(linear.value_heads), 0.0f);
  layer.state_norm.assign(static_cast<size_t>(linear.value_dim), 1.0f);
}

class Maker {
 public:
  Maker(const config::Geometry& g, Type type, uint64_t seed)
      : g_(g), s_(config::read_weight_shapes(g.path)), type_(type), seed_(seed) {}

  ModelWeights weights(int64_t memory_bytes) {
    bytes_ = 0;
    lay_out(nullptr);
    const std::string name = "random weights of " + g_.name;
    check_fits(name, bytes_, memory_bytes);
    const auto storage = std::make_shared<Storage>(bytes_);
    bytes_ = 0;
    ModelWeights weights = lay_out(storage->block.data());
    weights.path = name;
    weights.files = storage;
    return weights;
  }

 private:
  // Without `data` only their bytes are counted.
  WeightMatrix matrix(std::byte* data, int64_t rows, int64_t cols) {
    if (rows == 0) return {};
    std::byte* at = data ? data + bytes_ : nullptr;
    const WeightMatrix m(at, type_, rows, cols);
    if (at) fill(at, type_, rows, cols, math::random::key({seed_, static_cast<uint64_t>(bytes_)}));
    bytes_ += (m.bytes() + 63) / 64 * 64;
    return m;
  }

  ModelWeights lay_out(std::byte* data) {
    const std::vector<float> ones(static_cast<size_t>(s_.hidden), 1.0f);
    ModelWeights w{.path = {},
                   .config = config(),
                   .embedding = matrix(data, s_.vocab, s_.hidden),
                   .classifier = {},
                   .final_norm = ones,
                   .layers = {},
                   .files = {}};
    w.classifier = s_.tied ? w.embedding : matrix(data, s_.vocab, s_.hidden);
    const int64_t q = int64_t{g_.q_heads} * g_.head_dim, kv = int64_t{g_.kv_heads} * g_.head_dim;
    for (int64_t l = 0; l < g_.model_layers; ++l) {
      LayerWeights& layer = w.layers.emplace_back();
      layer.attention_norm = layer.ffn_norm = ones;
      if (keeps_rows(g_.kinds[static_cast<size_t>(l)])) {
        layer.wq = matrix(data, q, s_.hidden);
        layer.wk = matrix(data, kv, s_.hidden);
        layer.wv = matrix(data, kv, s_.hidden);
        layer.wo = matrix(data, s_.hidden, q);
      } else {
        layer.recurrent_in = matrix(data, s_.recurrent_in, s_.hidden);
        layer.recurrent_out = matrix(data, s_.hidden, s_.recurrent_out);
        fill_recurrence(s_, g_.linear, math::random::key({seed_, static_cast<uint64_t>(bytes_), 1}), layer);
      }
      layer.gate = matrix(data, s_.gated ? s_.intermediate : 0, s_.hidden);
      layer.up = matrix(data, s_.intermediate, s_.hidden);
      layer.down = matrix(data, s_.hidden, s_.intermediate);
    }
    return w;
  }

  ModelConfig config() const {
    const auto refuse = [&](const std::string& what) { throw std::invalid_argument(g_.path + ": " + what); };
    const auto unknown = std::count_if(g_.kinds.begin(), g_.kinds.end(), [&](const ModelLayer& layer) {
      return layer.shares >= 0 || (!keeps_rows(layer) && (!is_linear(layer) || s_.recurrent_in == 0));
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
  const Type type_;
  const uint64_t seed_;
  int64_t bytes_ = 0;
};

}  // namespace

ModelWeights random_weights(const config::Geometry& geometry, WeightMatrix::Type type, uint64_t seed,
                            int64_t memory_bytes) {
  return Maker(geometry, type, seed).weights(memory_bytes);
}

}  // namespace kv::model
