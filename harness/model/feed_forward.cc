#include "harness/model/feed_forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

namespace kv::model {
namespace {

// silu(a) = a / (1 + exp(-a)); gelu(a) = a / 2 (1 + tanh(sqrt(2 / pi) (a + 0.044715 a³))); relu2(a) = max(a, 0)²
using Values = Eigen::Map<Eigen::ArrayXf>;

void activate(Activation activation, Values a) {
  if (activation == Activation::kSilu) {
    a = a / (1.0f + (-a).exp());
    return;
  }
  if (activation == Activation::kRelu2) {
    a = a.max(0.0f).square();
    return;
  }
  const float scale = std::sqrt(2.0f / std::numbers::pi_v<float>);
  a = 0.5f * a * (1.0f + (scale * (a + 0.044715f * a.cube())).tanh());
}

// Calls work(first, count) for stretches of `size` values, which threads share.
void each_stretch(int64_t size, const auto& work) {
  constexpr int64_t kStretch = 1 << 13;  // a multiple of all vectors, so that every value is computed alike
#pragma omp parallel for if (size > 4 * kStretch)
  for (int64_t first = 0; first < size; first += kStretch) work(first, std::min(kStretch, size - first));
}

// down(act(gate x) * up x), or down(act(up x)) where there is no gate.
Matrix dense(const Matrix& x, const LayerWeights& layer, Activation activation) {
  if (layer.gate.rows() == 0) {
    Matrix up = project(x, layer.up, layer.b_up);
    each_stretch(up.size(), [&](int64_t first, int64_t count) {
      activate(activation, Values(up.data() + first, count));
    });
    return project(up, layer.down, layer.b_down);
  }
  std::vector<Matrix> both = apply_all(std::array{&layer.up, &layer.gate}, x);
  Matrix &up = both[0], &gate = both[1];
  add_bias(layer.b_up, up);
  add_bias(layer.b_gate, gate);
  each_stretch(up.size(), [&](int64_t first, int64_t count) {
    const Values g(gate.data() + first, count);
    activate(activation, g);
    Values(up.data() + first, count) *= g;
  });
  return project(up, layer.down, layer.b_down);
}

// gpt-oss: (up + 1) * gate * sigmoid(slope * gate), the gate at most `limit`, up within ±limit
// (transformers, GptOssExperts).
Matrix run_expert(const Matrix& x, const ExpertWeights& expert, const ModelConfig& c) {
  const Matrix gate = project(x, expert.gate, expert.b_gate).cwiseMin(c.expert_limit);
  const Matrix up = project(x, expert.up, expert.b_up).cwiseMin(c.expert_limit).cwiseMax(-c.expert_limit);
  const auto sigmoid = 1.0f / (1.0f + (-c.expert_slope * gate.array()).exp());
  return project(((up.array() + 1.0f) * gate.array() * sigmoid).matrix(), expert.down, expert.b_down);
}

// The experts that a token's router scores highest, and their weights: a softmax over their scores.
struct Route {
  Eigen::Index expert;
  Eigen::Index token;
  float weight;
};

void route(const Eigen::RowVectorXf& scores, Eigen::Index token, int count, std::vector<Route>& routes) {
  std::vector<Eigen::Index> order(static_cast<size_t>(scores.size()));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](Eigen::Index a, Eigen::Index b) { return scores[a] > scores[b]; });
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += std::exp(scores[order[static_cast<size_t>(i)]] - scores[order[0]]);
  for (int i = 0; i < count; ++i) {
    const Eigen::Index expert = order[static_cast<size_t>(i)];
    routes.push_back({expert, token, std::exp(scores[expert] - scores[order[0]]) / sum});
  }
}

// Each expert works on all its tokens at once.
Matrix mixture(const Matrix& x, const LayerWeights& layer, const ModelConfig& c) {
  const Matrix scores = project(x, layer.router, layer.b_router);
  std::vector<Route> routes;
  for (Eigen::Index t = 0; t < x.rows(); ++t) route(scores.row(t), t, c.experts_per_token, routes);
  std::stable_sort(routes.begin(), routes.end(),
                   [](const Route& a, const Route& b) { return a.expert < b.expert; });
  Matrix out = Matrix::Zero(x.rows(), x.cols());
  for (auto first = routes.begin(); first != routes.end();) {
    const auto last =
        std::find_if(first, routes.end(), [&](const Route& r) { return r.expert != first->expert; });
    Matrix taken(last - first, x.cols());
    for (auto r = first; r != last; ++r) taken.row(r - first) = x.row(r->token);
    const Matrix answer = run_expert(taken, layer.experts[static_cast<size_t>(first->expert)], c);
    for (auto r = first; r != last; ++r) out.row(r->token) += r->weight * answer.row(r - first);
    first = last;
  }
  return out;
}

}  // namespace

void add_bias(const std::vector<float>& bias, Matrix& y) {
  if (!bias.empty()) y.rowwise() += Eigen::Map<const Eigen::RowVectorXf>(bias.data(), y.cols());
}

Matrix project(const Matrix& x, const WeightMatrix& weights, const std::vector<float>& bias) {
  Matrix y = weights.apply(x);
  add_bias(bias, y);
  return y;
}

Matrix feed_forward(const Matrix& x, const LayerWeights& layer, const ModelConfig& config) {
  return config.experts_per_token > 0 ? mixture(x, layer, config) : dense(x, layer, config.activation);
}

}  // namespace kv::model
