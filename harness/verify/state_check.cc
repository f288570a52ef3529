#include "harness/verify/state_check.h"

#include <algorithm>

#include "harness/verify/reference/delta_rule.h"
#include "harness/verify/verify.h"

namespace kv::verify {

StateCheck::StateCheck(const LinearShape& shape, int layers)
    : shape_(shape), every_(std::max(1, layers * shape.value_heads / kMaxCheckedHeads)) {}

void StateCheck::record(int layer, const StepInput& in) {
  const int group = shape_.value_heads / shape_.key_heads;
  const auto append = [](std::vector<float>& to, const float* from, int64_t n) {
    to.insert(to.end(), from, from + n);
  };
  for (int h = 0; h < shape_.value_heads; ++h) {
    if ((layer * shape_.value_heads + h) % every_ != 0) continue;
    Head& head = kept_[{layer, h}];
    const int64_t keys = in.n * shape_.key_dim, values = in.n * shape_.value_dim;
    append(head.q, in.q + h / group * keys, keys);
    append(head.k, in.k + h / group * keys, keys);
    append(head.v, in.v + h * values, values);
    append(head.alpha, in.alpha + h * in.n, in.n);
    append(head.beta, in.beta + h * in.n, in.n);
    if (!in.out) continue;
    const float* end = in.out + (h + 1) * values;
    head.out.assign(end - shape_.value_dim, end);
  }
}

std::optional<double> StateCheck::error() const {
  std::vector<double> got, want;
  for (const auto& [at, head] : kept_) {
    const std::vector<double> outs = reference::run_delta_rule({.key_dim = shape_.key_dim,
                                                                .value_dim = shape_.value_dim,
                                                                .q = head.q,
                                                                .k = head.k,
                                                                .v = head.v,
                                                                .alpha = head.alpha,
                                                                .beta = head.beta})
                                         .out;
    want.insert(want.end(), outs.end() - shape_.value_dim, outs.end());
    got.insert(got.end(), head.out.begin(), head.out.end());
  }
  if (kept_.empty()) return std::nullopt;
  return relative_l2(got, want);
}

}  // namespace kv::verify
