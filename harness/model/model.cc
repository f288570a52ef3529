// The forward pass of all families, over weights from any file. n tokens go through each matrix product together: x [n,
// in] becomes x Wᵀ [n, out].
#include "harness/model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <stdexcept>

#include "harness/memory/machine.h"
#include "harness/model/feed_forward.h"
#include "harness/model/weights.h"

namespace kv::model {
namespace {

using ConstMap = Eigen::Map<const Matrix>;

// Below this many values threads cost more than they save.
constexpr int64_t kParallelValues = 1 << 15;

ModelWeights load(const std::string& path, int64_t memory_bytes) {
  const int64_t memory = memory_bytes > 0 ? memory_bytes : memory::available_memory_bytes();
  if (std::filesystem::is_directory(path)) return load_hugging_face(path, memory);
  throw std::invalid_argument("model " + path +
                              ": expected the folder of a Hugging Face model or a GGUF file; `./kvlab models "
                              "convert MODEL.bin TOKENIZER.bin FOLDER` makes one of llama2.c's");
}

// RMSNorm; with a bias LayerNorm, which takes the mean off first.
Matrix normalise(const Matrix& x, const std::vector<float>& weight, const std::vector<float>& bias,
                 float epsilon) {
  Matrix y = x;
  if (!bias.empty()) y.colwise() -= x.rowwise().mean();
  const Eigen::Map<const Eigen::RowVectorXf> scale(weight.data(), x.cols());
#pragma omp parallel for if (x.size() > kParallelValues)
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    const float mean_square = y.row(t).squaredNorm() / static_cast<float>(x.cols());
    y.row(t) *= 1.0f / std::sqrt(mean_square + epsilon);
    y.row(t) = y.row(t).cwiseProduct(scale);
  }
  if (!bias.empty()) y.rowwise() += Eigen::Map<const Eigen::RowVectorXf>(bias.data(), x.cols());
  return y;
}

// Every head of x [n, heads * head_dim] by itself, where the family does that.
void normalise_heads(const std::vector<float>& weight, float epsilon, Matrix& x) {
  if (weight.empty()) return;
  const auto head_dim = static_cast<Eigen::Index>(weight.size()), rows = x.size() / head_dim;
  const Matrix heads = normalise(ConstMap(x.data(), rows, head_dim), weight, {}, epsilon);
  Eigen::Map<Matrix>(x.data(), rows, head_dim) = heads;
}

// A step between two layers.
struct Rows {
  Matrix x;                      // the residual, [rows, dim]
  Matrix angles, window_angles;  // of config().rope, and of window_rope where it is another
  std::vector<int64_t> tokens;   // of the step, one a row

  // Row i goes on from row from[i].
  void follow(const std::vector<int64_t>& from) {
    for (Matrix* m : {&x, &angles, &window_angles}) {
      if (m->size() > 0) *m = (*m)(from, Eigen::all).eval();
    }
    std::vector<int64_t> followed;
    for (const int64_t row : from) followed.push_back(tokens[static_cast<size_t>(row)]);
    tokens = std::move(followed);
  }
};

Matrix recur(const Matrix& x, const LayerWeights& layer, int l, const Model::Parting& layers, Rows& rows) {
  const auto& in = layer.recurrent_in;
  const std::vector<Matrix> parts = apply_all(std::array{&in[0], &in[1], &in[2], &in[3]}, x);
  Matrix projected(x.rows(), in[0].rows() + in[1].rows() + in[2].rows() + in[3].rows());
  projected << parts[0], parts[1], parts[2], parts[3];
  std::vector<float> out;
  const std::vector<int64_t> from = layers.recurrence(l, x.rows(), projected.data(), out);
  if (!from.empty()) rows.follow(from);
  return layer.recurrent_out.apply(ConstMap(out.data(), rows.x.rows(), layer.recurrent_out.cols()));
}

// q [n, heads * 2 * head_dim], in which each head's query has its gate behind it, becomes [n, heads * head_dim]; returns
// the gates, likewise.
Matrix take_gates(int heads, Matrix& q) {
  const Eigen::Index head_dim = q.cols() / (2 * heads);
  Matrix gates(q.rows(), heads * head_dim), queries(q.rows(), heads * head_dim);
  for (int h = 0; h < heads; ++h) {
    queries.middleCols(h * head_dim, head_dim) = q.middleCols(2 * h * head_dim, head_dim);
    gates.middleCols(h * head_dim, head_dim) = q.middleCols((2 * h + 1) * head_dim, head_dim);
  }
  q = std::move(queries);
  return gates;
}

// A head that RoPE turns in part begins with the halves of its pairs. They become the first channels of its own halves,
// where caches look for pairs; scores stay the same.
void spread_pairs(int rotated, int head_dim, Matrix& x) {
  if (rotated == 0) return;
  for (float* head = x.data(); head < x.data() + x.size(); head += head_dim)
    std::rotate(head + rotated / 2, head + rotated, head + (head_dim + rotated) / 2);
}

// Heads whose pairs are neighbours become heads whose pairs are halves.
void put_in_halves(int head_dim, Matrix& x) {
  const Matrix pairs = x;
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    const Eigen::Index channel = i % head_dim;
    x.data()[i - channel + channel / 2 + channel % 2 * (head_dim / 2)] = pairs.data()[i];
  }
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

// `rotary` is one for all tokens, or one a token.
Rotary rotary_of(std::span<const Rotary> rotary, size_t token) {
  return rotary[rotary.size() > 1 ? token : 0];
}

// The angles of each token, [n, head_dim], of which a token that its cache rotates has none; no rows where nothing is
// rotated.
Matrix step_angles(const ModelConfig& config, const Rope& rope, std::span<const int64_t> positions,
                   std::span<const Rotary> rotary) {
  const auto by_cache = [](Rotary r) { return r == Rotary::kCache; };
  if (!config.rotary || std::all_of(rotary.begin(), rotary.end(), by_cache)) return {};
  const int half = config.head_dim() / 2;
  Matrix angles(static_cast<Eigen::Index>(positions.size()), 2 * half);
  for (Eigen::Index t = 0; t < angles.rows(); ++t) {
    const auto at = static_cast<size_t>(t);
    if (by_cache(rotary_of(rotary, at)))
      angles.row(t) << Eigen::RowVectorXf::Ones(half), Eigen::RowVectorXf::Zero(half);
    else
      rope_angles(rope, config.head_dim(), positions[at], angles.row(t).data());
  }
  return angles;
}

// Rotates every head of x [n, heads * head_dim].
void rotate_heads(RopePairs pairs, const Matrix& angles, Matrix& x) {
  const int head_dim = static_cast<int>(angles.cols());
#pragma omp parallel for if (x.size() > kParallelValues)
  for (Eigen::Index t = 0; t < angles.rows(); ++t) {
    for (float* head = x.row(t).data(); head < x.row(t).data() + x.cols(); head += head_dim)
      rotate(pairs, head_dim, angles.row(t).data(), head, head);
  }
}

}  // namespace

struct Model::Impl {
  ModelWeights weights;

  const ModelConfig& config() const { return weights.config; }

  void check_step(std::span<const int> tokens, std::span<const int64_t> positions,
                  std::span<const Rotary> rotary) const;
  Matrix embed(std::span<const int> tokens, std::span<const int64_t> positions) const;
  Matrix attend(const Matrix& x, const LayerWeights& layer, int l, const Parting& layers, Rows& rows) const;
  void feed_forward_all(const LayerWeights& layer, Matrix& x) const;
  std::vector<float> logits(const Matrix& x) const;
};

void Model::Impl::check_step(std::span<const int> tokens, std::span<const int64_t> positions,
                             std::span<const Rotary> rotary) const {
  if (tokens.size() != positions.size()) throw std::logic_error("forward: a token without a position");
  if (tokens.empty()) return;
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  const bool limited =
      !config().rotary || std::find(rotary.begin(), rotary.end(), Rotary::kTrained) != rotary.end();
  if (*low < 0 || (limited && *high >= config().max_tokens)) {
    throw std::invalid_argument("model " + weights.path + ": positions " + std::to_string(*low) + " to " +
                                std::to_string(*high) + " asked for, its " +
                                (config().rotary ? "rotary table has" : "learned positions are") + " 0 to " +
                                std::to_string(config().max_tokens - 1));
  }
  for (const int id : tokens) {
    if (id >= 0 && id < config().vocab_size) continue;
    throw std::invalid_argument("model " + weights.path + ": token id " + std::to_string(id) +
                                " is not in its vocabulary, 0 to " + std::to_string(config().vocab_size - 1));
  }
}

Matrix Model::Impl::embed(std::span<const int> tokens, std::span<const int64_t> positions) const {
  Matrix x(static_cast<Eigen::Index>(tokens.size()), config().dim);
  for (Eigen::Index t = 0; t < x.rows(); ++t)
    weights.embedding.read(tokens[static_cast<size_t>(t)], 1, x.row(t).data());
  if (config().embedding_scale != 1.0f) x *= config().embedding_scale;
  if (!weights.embedding_norm.empty()) x = normalise(x, weights.embedding_norm, {}, config().norm_epsilon);
  if (config().rotary) return x;
  Eigen::RowVectorXf learned(config().dim);
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    weights.positions.read(positions[static_cast<size_t>(t)], 1, learned.data());
    x.row(t) += learned;
  }
  return x;
}

Matrix Model::Impl::attend(const Matrix& x, const LayerWeights& layer, int l, const Parting& layers,
                           Rows& rows) const {
  std::vector<Matrix> qkv = apply_all(std::array{&layer.wq, &layer.wk, &layer.wv}, x);
  Matrix &q = qkv[0], &k = qkv[1], &v = qkv[2];
  add_bias(layer.bq, q);
  add_bias(layer.bk, k);
  add_bias(layer.bv, v);
  Matrix gates = config().gated_heads ? take_gates(config().q_heads, q) : Matrix();
  normalise_heads(layer.q_norm, config().norm_epsilon, q);
  normalise_heads(layer.k_norm, config().norm_epsilon, k);
  const Matrix& angles =
      config().window(l) > 0 && rows.window_angles.size() > 0 ? rows.window_angles : rows.angles;
  for (Matrix* side : {&q, &k}) {
    spread_pairs(config().rope.rotated, config().head_dim(), *side);
    if (config().to_halves) put_in_halves(config().head_dim(), *side);
    rotate_heads(config().rope.pairs, angles, *side);
  }
  if (config().query_scale != 1.0f) q *= config().query_scale;
  const std::vector<float> q_heads = split_heads(q, config().q_heads),
                           k_heads = split_heads(k, config().kv_heads),
                           v_heads = split_heads(v, config().kv_heads);
  std::vector<float> out;
  const std::vector<int64_t> from =
      layers.attention(l, x.rows(), q_heads.data(), k_heads.data(), v_heads.data(), out);
  if (!from.empty()) {
    rows.follow(from);
    if (gates.size() > 0) gates = gates(from, Eigen::all).eval();
  }
  Matrix read = join_heads(out, config().q_heads, rows.x.rows());
  if (gates.size() > 0) read.array() /= 1.0f + (-gates.array()).exp();
  return project(read, layer.wo, layer.bo);
}

// Adds it to the residual, some rows after others, since its activations are a layer's largest.
void Model::Impl::feed_forward_all(const LayerWeights& layer, Matrix& x) const {
  const float epsilon = config().norm_epsilon;
  const Eigen::Index blocks = (x.rows() + kRowsSideBySide - 1) / kRowsSideBySide;
  for (Eigen::Index block = 0; block < blocks; ++block) {
    const Eigen::Index first = x.rows() * block / blocks, end = x.rows() * (block + 1) / blocks;
    auto rows = x.middleRows(first, end - first);
    Matrix y = feed_forward(normalise(rows, layer.ffn_norm, layer.ffn_norm_bias, epsilon), layer, config());
    if (!layer.ffn_out_norm.empty()) y = normalise(y, layer.ffn_out_norm, {}, epsilon);
    rows += y;
  }
}

// From the residual behind the last layer.
std::vector<float> Model::Impl::logits(const Matrix& x) const {
  Matrix logits = weights.classifier.apply(
      normalise(x, weights.final_norm, weights.final_norm_bias, config().norm_epsilon));
  const float cap = config().logit_cap;
  if (cap > 0) logits = (cap * (logits.array() / cap).tanh()).matrix();
  return {logits.data(), logits.data() + logits.size()};
}

std::string ModelConfig::viewer(int layer) const {
  const bool all = std::all_of(kinds.begin(), kinds.end(), [](const ModelLayer& l) { return l.window > 0; });
  if (all) return "the model";
  return "layer " + std::to_string(layer) + " (" + kinds[static_cast<size_t>(layer)].kind + ") of the model";
}

Model::Model(const std::string& path, int64_t memory_bytes) : impl_(new Impl{load(path, memory_bytes)}) {}
Model::Model(ModelWeights weights) : impl_(new Impl{std::move(weights)}) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return impl_->config(); }
const ModelWeights& Model::weights() const { return impl_->weights; }
void Model::order_in_halves() {
  ModelConfig& c = impl_->weights.config;
  c.to_halves = c.to_halves || c.k_order() == "interleaved";
  c.rope.pairs = c.window_rope.pairs = RopePairs::kHalfSplit;
}
void Model::multiply_in_bf16() { impl_->weights.multiply_in_bf16(memory::available_memory_bytes()); }

std::vector<float> Model::forward(std::span<const int> tokens, int64_t first_position,
                                  const Attention& attention, Rotary rotary,
                                  const Recurrence& recurrence) const {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), first_position);
  return forward(tokens, positions, attention, {&rotary, 1}, {}, recurrence);
}

std::vector<float> Model::forward(std::span<const int> tokens, std::span<const int64_t> positions,
                                  const Attention& attention, std::span<const Rotary> rotary, Wanted wanted,
                                  const Recurrence& recurrence) const {
  const auto q_values = static_cast<size_t>(config().q_heads) * static_cast<size_t>(config().head_dim());
  const Parting layers{
      .attention =
          [&](int l, int64_t n, const float* q, const float* k, const float* v, std::vector<float>& out) {
            out.resize(static_cast<size_t>(n) * q_values);
            attention(l, n, q, k, v, out.data());
            return std::vector<int64_t>{};
          },
      .recurrence =
          [&](int l, int64_t n, const float* projected, std::vector<float>& out) {
            if (!recurrence)
              throw std::logic_error("forward: nobody keeps the state of layer " + std::to_string(l));
            const LayerWeights& layer = weights().layers[static_cast<size_t>(l)];
            out.resize(static_cast<size_t>(n * layer.recurrent_out.cols()));
            recurrence(l, n, projected, out.data());
            return std::vector<int64_t>{};
          }};
  return forward(tokens, positions, layers, rotary, wanted);
}

std::vector<float> Model::forward(std::span<const int> tokens, std::span<const int64_t> positions,
                                  const Parting& layers, std::span<const Rotary> rotary,
                                  Wanted wanted) const {
  const Impl& m = *impl_;
  m.check_step(tokens, positions, rotary);
  if (tokens.empty()) return {};
  const float epsilon = config().norm_epsilon;
  const bool two_ropes = !(config().window_rope == config().rope);
  Rows rows{
      .x = m.embed(tokens, positions),
      .angles = step_angles(config(), config().rope, positions, rotary),
      .window_angles = two_ropes ? step_angles(config(), config().window_rope, positions, rotary) : Matrix(),
      .tokens = std::vector<int64_t>(tokens.size())};
  std::iota(rows.tokens.begin(), rows.tokens.end(), 0);
  int l = 0;
  for (const LayerWeights& layer : m.weights.layers) {
    const Matrix normed = normalise(rows.x, layer.attention_norm, layer.attention_norm_bias, epsilon);
    Matrix y = layer.recurrent_out.rows() > 0 ? recur(normed, layer, l, layers, rows)
                                              : m.attend(normed, layer, l, layers, rows);
    if (!layer.attention_out_norm.empty()) y = normalise(y, layer.attention_out_norm, {}, epsilon);
    rows.x += y;
    m.feed_forward_all(layer, rows.x);
    ++l;
  }
  if (!wanted) return m.logits(rows.x);
  std::vector<bool> is_wanted(tokens.size());
  for (const int64_t token : *wanted) is_wanted.at(static_cast<size_t>(token)) = true;
  std::vector<int64_t> of;
  for (int64_t row = 0; row < rows.x.rows(); ++row) {
    if (is_wanted[static_cast<size_t>(rows.tokens[static_cast<size_t>(row)])]) of.push_back(row);
  }
  return of.empty() ? std::vector<float>{} : m.logits(rows.x(of, Eigen::all));
}

}  // namespace kv::model
