// keydiff (arXiv:2504.15364): drops the keys of the largest cosine similarity to the mean direction of all.
#include <Eigen/Dense>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

// Tokens' keys of length 1, as columns.
Eigen::MatrixXd directions(const Prompt& prompt) {
  Eigen::MatrixXd keys(prompt.head_dim, prompt.tokens);
  for (int64_t i = 0; i < prompt.tokens; ++i)
    keys.col(i) = Eigen::Map<const Eigen::VectorXf>(prompt.k[static_cast<size_t>(i)].data(), prompt.head_dim)
                      .cast<double>()
                      .normalized();
  return keys;
}

std::unique_ptr<Rule> make_keydiff(const Parameters& p) {
  return cut_of(parameter(p, "budget"), [](const auto&, const Prompt& prompt) {
    const Eigen::MatrixXd keys = directions(prompt);
    const Eigen::VectorXd likeness = keys.transpose() * keys.rowwise().mean().normalized();
    std::vector<double> scores;
    for (const double one : likeness) scores.push_back(1.0 - one);
    return scores;
  });
}

}  // namespace

const Oracle keydiff{"keydiff", make_keydiff};

}  // namespace kv::reference::policy
