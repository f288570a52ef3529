#include "harness/verify/reference/delta_rule.h"

#include <Eigen/Dense>

namespace kv::reference {

DeltaRuleResult run_delta_rule(const DeltaRule& head) {
  const auto row = [](std::span<const float> from, size_t t, int dim) {
    return Eigen::VectorXd(
        Eigen::Map<const Eigen::VectorXf>(from.data() + t * static_cast<size_t>(dim), dim).cast<double>());
  };
  Eigen::MatrixXd s = Eigen::MatrixXd::Zero(head.key_dim, head.value_dim);
  DeltaRuleResult result;
  for (size_t t = 0; t < head.alpha.size(); ++t) {
    const Eigen::VectorXd k = row(head.k, t, head.key_dim), v = row(head.v, t, head.value_dim);
    const Eigen::MatrixXd decayed = static_cast<double>(head.alpha[t]) * s;
    s = decayed + static_cast<double>(head.beta[t]) * k * (v - decayed.transpose() * k).transpose();
    const Eigen::VectorXd out = s.transpose() * row(head.q, t, head.key_dim);
    result.out.insert(result.out.end(), out.begin(), out.end());
  }
  for (int i = 0; i < head.key_dim; ++i)
    for (int j = 0; j < head.value_dim; ++j) result.state.push_back(s(i, j));
  return result;
}

}  // namespace kv::reference
