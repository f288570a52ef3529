// Causal attention that keeps every row: matrix products over a block of queries at a time. In a layer with a
// sliding window, rows that have left it get no weight.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "harness/model/model.h"

namespace kv::model {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;

class FullAttention {
 public:
  explicit FullAttention(const ModelConfig& config)
      : config_(config), k_(static_cast<size_t>(config.layers * config.kv_heads)), v_(k_.size()) {}

  void step(int layer, int64_t n, const float* q, const float* k, const float* v, float* out) {
    const int64_t head_size = n * config_.head_dim(), group = config_.q_heads / config_.kv_heads;
    for (int h = 0; h < config_.kv_heads; ++h) {
      append(k_[head(layer, h)], k + h * head_size, head_size);
      append(v_[head(layer, h)], v + h * head_size, head_size);
      for (int64_t g = h * group; g < (h + 1) * group; ++g) {
        const float* sinks = config_.sinks(layer);
        attend({head(layer, h), config_.window(layer), sinks ? sinks + g : nullptr}, n, q + g * head_size,
               out + g * head_size);
      }
    }
  }

 private:
  // Queries that are scored together: enough for a matrix product, and few enough that the scores of a long
  // prefill stay small.
  static constexpr int64_t kQueryBlock = 64;

  size_t head(int layer, int h) const { return static_cast<size_t>(layer * config_.kv_heads + h); }

  static void append(std::vector<float>& kept, const float* rows, int64_t values) {
    kept.insert(kept.end(), rows, rows + values);
  }

  // A query head, as attention sees it.
  struct Head {
    size_t rows;        // whose K and V it reads
    int64_t window;     // 0: none
    const float* sink;  // or null
  };

  // The last n rows of the head are the queries' own tokens.
  void attend(const Head& of, int64_t n, const float* q, float* out) const {
    const std::vector<float>&kept_k = k_[of.rows], &kept_v = v_[of.rows];
    const int64_t head_dim = config_.head_dim(), past = static_cast<int64_t>(kept_k.size()) / head_dim - n;
    const float cap = config_.score_cap;
    for (int64_t first = 0; first < n; first += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, n - first), rows = past + first + count;
      const ConstMap k(kept_k.data(), rows, head_dim), v(kept_v.data(), rows, head_dim);
      Matrix scores = ConstMap(q + first * head_dim, count, head_dim) * k.transpose();
      scores *= 1.0f / std::sqrt(static_cast<float>(head_dim));
      if (cap > 0) scores = (cap * (scores.array() / cap).tanh()).matrix();
      for (int64_t t = 0; t < count; ++t) causal_softmax(of, past + first + t + 1, scores.row(t));
      Eigen::Map<Matrix>(out + first * head_dim, count, head_dim).noalias() = scores * v;
    }
  }

  // Rows […, end) are those of the query's token and before.
  static void causal_softmax(const Head& of, int64_t end, Eigen::Ref<Eigen::RowVectorXf> scores) {
    const int64_t visible = of.window > 0 ? std::min(end, of.window) : end;
    auto seen = scores.segment(end - visible, visible);
    const float max = of.sink ? std::max(*of.sink, seen.maxCoeff()) : seen.maxCoeff();
    seen = (seen.array() - max).exp();
    seen /= seen.sum() + (of.sink ? std::exp(*of.sink - max) : 0.0f);
    scores.head(end - visible).setZero();
    scores.tail(scores.size() - end).setZero();
  }

  ModelConfig config_;
  std::vector<std::vector<float>> k_, v_;  // [layers * kv_heads] of [rows, head_dim]
};

}  // namespace

Model::Attention full_attention(const ModelConfig& config) {
  // Shared, because std::function is copied freely and a copy must go on with the same rows.
  auto kept = std::make_shared<FullAttention>(config);
  return [kept](int layer, int64_t n, const float* q, const float* k, const float* v, float* out) {
    kept->step(layer, n, q, k, v, out);
  };
}

}  // namespace kv::model
