// llama2.c's legacy (v0) checkpoint and the Llama forward pass over it.
//
// The file is seven int32 (dim, hidden_dim, layers, heads, kv heads, vocab size, sequence length) and then
// plain f32 tensors, the layers of one tensor side by side. A row of a matrix belongs to one output, so n
// tokens x [n, in] become x Wᵀ [n, out]. https://github.com/karpathy/llama2.c, `legacy_export` in export.py
// and `forward` in run.c.
#include "harness/model.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "harness/mapped_file.h"

static_assert(std::endian::native == std::endian::little, "llama2.c files are read as they lie in memory");

namespace kv {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

constexpr int kHeaderFields = 7;
constexpr size_t kHeaderBytes = kHeaderFields * sizeof(int32_t);
constexpr float kNormEpsilon = 1e-5f;

// Larger than any model's, and small enough that no product of a tensor's sides can overflow int64.
constexpr int64_t kMaxSide = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 12;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("model " + path + ": " + reason + " (expected a llama2.c legacy v0 file)");
}

void check_divides(const std::string& path, const char* what, int whole, const char* by, int part) {
  if (whole % part == 0) return;
  refuse(path, std::string(what) + " " + std::to_string(whole) + " is not a multiple of " + by + " " +
                   std::to_string(part));
}

struct Header {
  ModelConfig config;
  bool tied;  // the classifier is the embedding; a negative vocabulary size in the file says that it is not
};

Header read_header(const MappedFile& file) {
  if (file.bytes().size() < kHeaderBytes) {
    refuse(file.path(), "found " + std::to_string(file.bytes().size()) + " bytes, expected a header of " +
                            std::to_string(kHeaderBytes));
  }
  std::array<int32_t, kHeaderFields> raw;
  std::memcpy(raw.data(), file.bytes().data(), kHeaderBytes);
  constexpr std::array<const char*, kHeaderFields> names = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                                            "n_kv_heads", "vocab_size", "seq_len"};
  std::array<int, kHeaderFields> field;
  for (size_t i = 0; i < kHeaderFields; ++i) {
    const bool is_vocab = i == 5;
    const int64_t value = is_vocab ? std::abs(int64_t{raw[i]}) : raw[i];
    const int64_t limit = i == 2 ? kMaxLayers : kMaxSide;
    if (value < 1 || value > limit) {
      refuse(file.path(), std::string("header field ") + names[i] + " is " + std::to_string(raw[i]) +
                              ", expected 1 to " + std::to_string(limit));
    }
    field[i] = static_cast<int>(value);
  }
  const ModelConfig c = {field[0], field[1], field[2], field[3], field[4], field[5], field[6]};
  check_divides(file.path(), "dim", c.dim, "n_heads", c.q_heads);
  check_divides(file.path(), "n_heads", c.q_heads, "n_kv_heads", c.kv_heads);
  check_divides(file.path(), "head dimension", c.head_dim(), "a rotary pair's", 2);
  return {c, raw[5] > 0};
}

// The tensors in the order of the file.
enum Tensor {
  kEmbedding,
  kAttentionNorm,
  kWq,
  kWk,
  kWv,
  kWo,
  kFfnNorm,
  kW1,
  kW2,
  kW3,
  kFinalNorm,
  kCos,
  kSin,
  kClassifier,
  kTensors
};

struct Shape {
  int64_t rows, cols;
};

std::array<Shape, kTensors> shapes(const Header& header) {
  const ModelConfig& c = header.config;
  const int64_t dim = c.dim, hidden = c.hidden_dim, layers = c.layers, pairs = c.head_dim() / 2;
  const int64_t kv_dim = int64_t{c.kv_heads} * c.head_dim();
  return {{
      {c.vocab_size, dim},
      {layers, dim},
      {layers * dim, dim},
      {layers * kv_dim, dim},
      {layers * kv_dim, dim},
      {layers * dim, dim},
      {layers, dim},
      {layers * hidden, dim},
      {layers * dim, hidden},
      {layers * hidden, dim},
      {1, dim},
      {c.max_tokens, pairs},
      {c.max_tokens, pairs},
      {header.tied ? 0 : c.vocab_size, dim},
  }};
}

int64_t expected_bytes(const Header& header) {
  int64_t values = 0;
  for (const Shape& shape : shapes(header)) values += shape.rows * shape.cols;
  return static_cast<int64_t>(kHeaderBytes) + values * static_cast<int64_t>(sizeof(float));
}

Header checked_header(const MappedFile& file) {
  const Header header = read_header(file);
  const int64_t expected = expected_bytes(header), found = static_cast<int64_t>(file.bytes().size());
  if (found != expected) {
    refuse(file.path(),
           "its header makes " + std::to_string(expected) + " bytes, found " + std::to_string(found));
  }
  return header;
}

Matrix rms_norm(const Matrix& x, const Eigen::Ref<const Eigen::RowVectorXf>& weight) {
  Matrix y = x;
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    const float mean_square = x.row(t).squaredNorm() / static_cast<float>(x.cols());
    y.row(t) *= 1.0f / std::sqrt(mean_square + kNormEpsilon);
  }
  return y * weight.asDiagonal();
}

// x w2(silu(w1 x) * w3 x), with silu(a) = a / (1 + exp(-a)).
Matrix swiglu(const Matrix& x, const ConstMap& w1, const ConstMap& w2, const ConstMap& w3) {
  const Matrix gate = x * w1.transpose(), up = x * w3.transpose();
  const Matrix product = (gate.array() / (1.0f + (-gate.array()).exp()) * up.array()).matrix();
  return product * w2.transpose();
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

}  // namespace

struct Model::Impl {
  MappedFile file;
  Header header;
  std::vector<ConstMap> tensors;

  explicit Impl(const std::string& path) : file(path), header(checked_header(file)) {
    const std::byte* next = file.bytes().data() + kHeaderBytes;
    for (const Shape& shape : shapes(header)) {
      tensors.emplace_back(reinterpret_cast<const float*>(next), shape.rows, shape.cols);
      next += static_cast<size_t>(shape.rows * shape.cols) * sizeof(float);
    }
  }

  const ModelConfig& config() const { return header.config; }

  // One layer's share of a tensor.
  ConstMap layer(Tensor tensor, int l) const {
    const ConstMap& all = tensors[tensor];
    const Eigen::Index rows = all.rows() / config().layers;
    return {all.data() + l * rows * all.cols(), rows, all.cols()};
  }

  void check_step(std::span<const int> tokens, std::span<const int64_t> positions) const;
  Matrix embed(std::span<const int> tokens) const;
  void rotate(Matrix& x, std::span<const int64_t> positions) const;
  Matrix attend(const Matrix& x, int l, std::span<const int64_t> positions, const Attention& attention) const;
};

void Model::Impl::check_step(std::span<const int> tokens, std::span<const int64_t> positions) const {
  if (tokens.size() != positions.size()) throw std::logic_error("a token without a position");
  if (tokens.empty()) return;
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  if (*low < 0 || *high >= config().max_tokens) {
    throw std::invalid_argument("model " + file.path() + ": positions " + std::to_string(*low) + " to " +
                                std::to_string(*high) + " asked for, its rotary table has 0 to " +
                                std::to_string(config().max_tokens - 1));
  }
  for (const int id : tokens) {
    if (id >= 0 && id < config().vocab_size) continue;
    throw std::invalid_argument("model " + file.path() + ": token id " + std::to_string(id) +
                                " is not in its vocabulary, 0 to " + std::to_string(config().vocab_size - 1));
  }
}

Matrix Model::Impl::embed(std::span<const int> tokens) const {
  Matrix x(static_cast<Eigen::Index>(tokens.size()), config().dim);
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    x.row(t) = tensors[kEmbedding].row(tokens[static_cast<size_t>(t)]);
  }
  return x;
}

// Turns each pair (2i, 2i+1) of every head by its angle at the token's position.
void Model::Impl::rotate(Matrix& x, std::span<const int64_t> positions) const {
  const Eigen::Index pairs = tensors[kCos].cols();
  for (Eigen::Index t = 0; t < x.rows(); ++t) {
    const int64_t position = positions[static_cast<size_t>(t)];
    const auto cos = tensors[kCos].row(position), sin = tensors[kSin].row(position);
    for (Eigen::Index p = 0; p < x.cols() / 2; ++p) {
      const float a = x(t, 2 * p), b = x(t, 2 * p + 1), c = cos(p % pairs), s = sin(p % pairs);
      x(t, 2 * p) = a * c - b * s;
      x(t, 2 * p + 1) = a * s + b * c;
    }
  }
}

Matrix Model::Impl::attend(const Matrix& x, int l, std::span<const int64_t> positions,
                           const Attention& attention) const {
  Matrix q = x * layer(kWq, l).transpose(), k = x * layer(kWk, l).transpose();
  const Matrix v = x * layer(kWv, l).transpose();
  rotate(q, positions);
  rotate(k, positions);
  const std::vector<float> q_heads = split_heads(q, config().q_heads),
                           k_heads = split_heads(k, config().kv_heads),
                           v_heads = split_heads(v, config().kv_heads);
  std::vector<float> out(q_heads.size());
  attention(l, x.rows(), q_heads.data(), k_heads.data(), v_heads.data(), out.data());
  return join_heads(out, config().q_heads, x.rows()) * layer(kWo, l).transpose();
}

Model::Model(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return impl_->config(); }

std::vector<float> Model::forward(std::span<const int> tokens, int64_t first_position,
                                  const Attention& attention) const {
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), first_position);
  return forward(tokens, positions, attention);
}

std::vector<float> Model::forward(std::span<const int> tokens, std::span<const int64_t> positions,
                                  const Attention& attention) const {
  const Impl& m = *impl_;
  m.check_step(tokens, positions);
  if (tokens.empty()) return {};
  Matrix x = m.embed(tokens);
  for (int l = 0; l < config().layers; ++l) {
    x += m.attend(rms_norm(x, m.layer(kAttentionNorm, l)), l, positions, attention);
    x += swiglu(rms_norm(x, m.layer(kFfnNorm, l)), m.layer(kW1, l), m.layer(kW2, l), m.layer(kW3, l));
  }
  const ConstMap& classifier = m.tensors[m.header.tied ? kEmbedding : kClassifier];
  std::vector<float> logits(tokens.size() * static_cast<size_t>(config().vocab_size));
  Eigen::Map<Matrix>(logits.data(), x.rows(), config().vocab_size).noalias() =
      rms_norm(x, m.tensors[kFinalNorm]) * classifier.transpose();
  return logits;
}

}  // namespace kv
