// The gated delta rule in FP64, as papers write it: a sequence of matrix products.
#pragma once

#include <span>
#include <vector>

namespace kv::reference {

// One head over n tokens, from a state of zeros (Yang et al. 2024, arXiv:2412.06464, equation 10, with S as
// [key_dim, value_dim]): S = alpha S + beta k (v - (alpha S)^T k)^T, out = S^T q.
struct DeltaRule {
  int key_dim, value_dim;
  std::span<const float> q, k, v;      // [n, key_dim], [n, key_dim], [n, value_dim]
  std::span<const float> alpha, beta;  // [n]
};

struct DeltaRuleResult {
  std::vector<double> out;    // [n, value_dim]
  std::vector<double> state;  // [key_dim, value_dim] after the last token
};

DeltaRuleResult run_delta_rule(const DeltaRule& head);

}  // namespace kv::reference
