// The Llama forward pass over weights from any file. n tokens go through each matrix product together: x [n,
// in] becomes x Wᵀ [n, out].
#include "harness/model/model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "harness/memory/machine.h"
#include "harness/model/weights.h"

namespace kv::model {
namespace {

using ConstMap = Eigen::Map<const Matrix>;

ModelWeights load(const std::string& path, int64_t memory_bytes) {
  const int64_t memory = memory_bytes > 0 ? memory_bytes : memory::available_memory_bytes();
  return std::filesystem::is_directory(path) ? load_hugging_face(path, memory) : load_llama2c(path, memory);
}

Matrix rms_norm(const Matrix& x, const std::vector<float>& weight, float epsilon) {
  Matrix y = x;
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    const float mean_square = x.row(t).squaredNorm() / static_cast<float>(x.cols());
    y.row(t) *= 1.0f / std::sqrt(mean_square + epsilon);
  }
  return y * Eigen::Map<const Eigen::RowVectorXf>(weight.data(), x.cols()).asDiagonal();
}

// x Wᵀ + bias
Matrix project(const Matrix& x, const WeightMatrix& weights, const std::vector<float>& bias) {
  Matrix y = weights.apply(x);
  if (!bias.empty()) y.rowwise() += Eigen::Map<const Eigen::RowVectorXf>(bias.data(), y.cols());
  return y;
}

// down(silu(gate x) * up x), with silu(a) = a / (1 + exp(-a)); without a gate down(silu(up x)).
Matrix mlp(const Matrix& x, const LayerWeights& layer) {
  const bool gated = layer.gate.rows() > 0;
  Matrix up = layer.up.apply(x);
  const Matrix gate = gated ? layer.gate.apply(x) : up;
  if (!gated) up.setOnes();
  return layer.down.apply((gate.array() / (1.0f + (-gate.array()).exp()) * up.array()).matrix());
}

// The projections of a layer with recurrent state. The state is not computed: its inputs pass as they are.
Matrix project_recurrent(const Matrix& x, const LayerWeights& layer) {
  return layer.recurrent_out.apply(layer.recurrent_in.apply(x).leftCols(layer.recurrent_out.cols()));
}

// The last of each `of` rows.
Matrix every(int64_t of, const Matrix& x) {
  Matrix last(x.rows() / of, x.cols());
  for (Eigen::Index t = 0; t < last.rows(); ++t) last.row(t) = x.row((t + 1) * of - 1);
  return last;
}

// [n, heads * head_dim] to [heads, n, head_dim], as attention wants it.
std::vector<float> split_heads(const Matrix& x, int heads) {
  const Eigen::Index n = x.rows(), head_dim = x.cols() / heads;
  std::vector<float> out(static_cast<size_t>(x.size()));
  for (int h = 0; h < heads; ++h) {
    Eigen::Map<Matrix>(out.data() + h * n * head_dim, n, head_dim) = x.middleCols(h * head_dim, head_dim);
  }
  return out;
}

Matrix join_heads(const std::vector<float>& x, int heads, Eigen::Index n) {
  const Eigen::Index head_dim = static_cast<Eigen::Index>(x.size()) / (heads * n);
  Matrix out(n, heads * head_dim);
  for (int h = 0; h < heads; ++h) {
    out.middleCols(h * head_dim, head_dim) = ConstMap(x.data() + h * n * head_dim, n, head_dim);
  }
  return out;
}

// The angles of each token, [n, head_dim]; no rows where the cache is to rotate q and k.
Matrix step_angles(const ModelConfig& config, std::span<const int64_t> positions, Rotary rotary) {
  if (rotary == Rotary::kCache) return {};
  Matrix angles(static_cast<Eigen::Index>(positions.size()), config.head_dim());
  for (Eigen::Index t = 0; t < angles.rows(); ++t) {
    rope_angles(config.rope, config.head_dim(), positions[static_cast<size_t>(t)], angles.row(t).data());
  }
  return angles;
}

// Rotates every head of x [n, heads * head_dim].
void rotate_heads(RopePairs pairs, const Matrix& angles, Matrix& x) {
  const int head_dim = static_cast<int>(angles.cols());
  for (Eigen::Index t = 0; t < angles.rows(); ++t) {
    for (float* head = x.row(t).data(); head < x.row(t).data() + x.cols(); head += head_dim)
      rotate(pairs, head_dim, angles.row(t).data(), head, head);
  }
}

}  // namespace

struct Model::Impl {
  ModelWeights weights;

  const ModelConfig& config() const { return weights.config; }

  void check_step(std::span<const int> tokens, std::span<const int64_t> positions, Rotary rotary) const;
  Matrix embed(std::span<const int> tokens) const;
  Matrix attend(const Matrix& x, const LayerWeights& layer, int l, const Matrix& angles,
                const Attention& attention) const;
};

void Model::Impl::check_step(std::span<const int> tokens, std::span<const int64_t> positions,
                             Rotary rotary) const {
  if (tokens.size() != positions.size()) throw std::logic_error("forward: a token without a position");
  if (tokens.empty()) return;
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  if (*low < 0 || (rotary == Rotary::kTrained && *high >= config().max_tokens)) {
    throw std::invalid_argument("model " + weights.path + ": positions " + std::to_string(*low) + " to " +
                                std::to_string(*high) + " asked for, its rotary table has 0 to " +
                                std::to_string(config().max_tokens - 1));
  }
  for (const int id : tokens) {
    if (id >= 0 && id < config().vocab_size) continue;
    throw std::invalid_argument("model " + weights.path + ": token id " + std::to_string(id) +
                                " is not in its vocabulary, 0 to " + std::to_string(config().vocab_size - 1));
  }
}

Matrix Model::Impl::embed(std::span<const int> tokens) const {
  Matrix x(static_cast<Eigen::Index>(tokens.size()), config().dim);
  for (Eigen::Index t = 0; t < x.rows(); ++t)
    weights.embedding.read(tokens[static_cast<size_t>(t)], 1, x.row(t).data());
  return x;
}

Matrix Model::Impl::attend(const Matrix& x, const LayerWeights& layer, int l, const Matrix& angles,
                           const Attention& attention) const {
  Matrix q = project(x, layer.wq, layer.bq), k = project(x, layer.wk, layer.bk);
  const Matrix v = project(x, layer.wv, layer.bv);
  rotate_heads(config().rope.pairs, angles, q);
  rotate_heads(config().rope.pairs, angles, k);
  const std::vector<float> q_heads = split_heads(q, config().q_heads),
                           k_heads = split_heads(k, config().kv_heads),
                           v_heads = split_heads(v, config().kv_heads);
  std::vector<float> out(q_heads.size());
  attention(l, x.rows(), q_heads.data(), k_heads.data(), v_heads.data(), out.data());
  return project(join_heads(out, config().q_heads, x.rows()), layer.wo, layer.bo);
}

Model::Model(const std::string& path, int64_t memory_bytes) : impl_(new Impl{load(path, memory_bytes)}) {}
Model::Model(ModelWeights weights) : impl_(new Impl{std::move(weights)}) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return impl_->config(); }
const ModelWeights& Model::weights() const { return impl_->weights; }

std::vector<float> Model::forward(std::span<const int> tokens, int64_t first_position,
                                  const Attention& attention, Rotary rotary) const {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), first_position);
  return forward(tokens, positions, attention, rotary);
}

std::vector<float> Model::forward(std::span<const int> tokens, std::span<const int64_t> positions,
                                  const Attention& attention, Rotary rotary, int64_t of) const {
  const Impl& m = *impl_;
  m.check_step(tokens, positions, rotary);
  if (tokens.empty()) return {};
  const float epsilon = config().norm_epsilon;
  const Matrix angles = step_angles(config(), positions, rotary);
  Matrix x = m.embed(tokens);
  int l = 0;  // of those that keep K and V
  for (const LayerWeights& layer : m.weights.layers) {
    const Matrix normed = rms_norm(x, layer.attention_norm, epsilon);
    x += layer.recurrent_in.rows() > 0 ? project_recurrent(normed, layer)
                                       : m.attend(normed, layer, l++, angles, attention);
    x += mlp(rms_norm(x, layer.ffn_norm, epsilon), layer);
  }
  const Matrix last = of == 1 ? x : every(of, x);
  const Matrix logits = m.weights.classifier.apply(rms_norm(last, m.weights.final_norm, epsilon));
  return {logits.data(), logits.data() + logits.size()};
}

}  // namespace kv::model
