// expected (arXiv:2510.00636): cuts a prompt to the tokens that a normal query with the prompt's mean and covariance
// is expected to attend to, times the norm of their values. The first `sinks` tokens stay and are left out of the
// moments. With `future`, queries are rotated back to before RoPE and then by the mean rotation of that many coming
// positions.
#include <Eigen/Dense>
#include <cmath>
#include <complex>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Vector vector_of(std::span<const float> row) {
  return Eigen::Map<const Eigen::VectorXf>(row.data(), static_cast<Eigen::Index>(row.size())).cast<double>();
}

// The mean matrix of RoPE's rotations by positions [first, first + count).
Matrix mean_rotation(const Rotation& rotation, int64_t first, int64_t count) {
  const auto pairs = static_cast<Eigen::Index>(rotation.frequency.size());
  Matrix mean = Matrix::Zero(2 * pairs, 2 * pairs);
  for (Eigen::Index i = 0; i < pairs; ++i) {
    std::complex<double> sum = 0.0;
    for (int64_t p = first; p < first + count; ++p)
      sum += std::polar(1.0, static_cast<double>(p) * rotation.frequency[static_cast<size_t>(i)]);
    sum /= static_cast<double>(count);
    const Eigen::Index a = rotation.half_split ? i : 2 * i, b = rotation.half_split ? i + pairs : 2 * i + 1;
    mean(a, a) = mean(b, b) = sum.real();
    mean(b, a) = sum.imag();
    mean(a, b) = -sum.imag();
  }
  return mean;
}

class Expected : public Rule {
 public:
  explicit Expected(const Parameters& p)
      : budget_(parameter(p, "budget")), sinks_(parameter(p, "sinks")), future_(parameter(p, "future")) {}

  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    if (prompt.tokens <= budget_) return std::nullopt;
    Cut cut{std::vector<double>(slots.size(), 0.0), budget_};
    for (int h = 0; h < prompt.group; ++h) {
      const Vector weights = expected_weights(prompt, h);
      for (Eigen::Index i = 0; i < weights.size(); ++i)
        cut.score[static_cast<size_t>(i + sinks_)] += weights[i] / prompt.group;
    }
    for (int64_t i = 0; i < prompt.tokens; ++i) {
      double& score = cut.score[static_cast<size_t>(i)];
      score = i < sinks_ ? kInfinite : score * vector_of(prompt.v[static_cast<size_t>(i)]).norm();
    }
    return cut;
  }

 private:
  // Weights of the tokens behind the sinks.
  Vector expected_weights(const Prompt& prompt, int query_head) const {
    const Eigen::Index d = prompt.head_dim, n = prompt.tokens - sinks_;
    Matrix q(n, d), k(n, d);
    for (Eigen::Index i = 0; i < n; ++i) {
      const int64_t t = i + sinks_;
      Vector query = vector_of(prompt.q[static_cast<size_t>(query_head * prompt.tokens + t)]);
      if (future_ > 0) query = mean_rotation(*prompt.rotation, t, 1).transpose() * query;
      q.row(i) = query.transpose();
      k.row(i) = vector_of(prompt.k[static_cast<size_t>(t)]).transpose();
    }
    Vector mean = q.colwise().mean().transpose();
    const Matrix centred = q.rowwise() - mean.transpose();
    Matrix covariance = centred.transpose() * centred / static_cast<double>(n);
    if (future_ > 0) {
      const Matrix coming = mean_rotation(*prompt.rotation, prompt.tokens, future_);
      mean = coming * mean;
      covariance = coming * covariance * coming.transpose();
    }
    const double scale = static_cast<double>(d);
    Vector logit =
        k * mean / std::sqrt(scale) + (k * covariance).cwiseProduct(k).rowwise().sum() / (2.0 * scale);
    logit.array() -= logit.maxCoeff();
    const Vector weight = logit.array().exp().matrix();
    return weight / weight.sum();
  }

  int64_t budget_, sinks_, future_;
};

}  // namespace

const Oracle expected{"expected", make_rule<Expected>};

}  // namespace kv::reference::policy
