// cur (arXiv:2509.15038): keeps tokens of the largest product of shares, of their keys' and values' squared norms in blocks of
// `window` tokens, and the first `sinks`.
#include <Eigen/Dense>
#include <algorithm>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

// A token's share of the squared norms of its block.
double share(const std::vector<std::span<const float>>& rows, int64_t token, int64_t window) {
  const auto square = [&](int64_t at) {
    const auto& row = rows[static_cast<size_t>(at)];
    return Eigen::Map<const Eigen::VectorXf>(row.data(), std::ssize(row)).cast<double>().squaredNorm();
  };
  double all = 0.0;
  for (int64_t at = token / window * window; at < std::min(std::ssize(rows), (token / window + 1) * window);
       ++at)
    all += square(at);
  return square(token) / all;
}

std::unique_ptr<Rule> make_cur(const Parameters& p) {
  const int64_t sinks = parameter(p, "sinks"), window = parameter(p, "window");
  return cut_of(parameter(p, "budget"), [=](const auto& slots, const Prompt& prompt) {
    std::vector<double> scores;
    for (const Slot& slot : slots)
      scores.push_back(slot.token < sinks
                           ? kInfinite
                           : share(prompt.k, slot.token, window) * share(prompt.v, slot.token, window));
    return scores;
  });
}

}  // namespace

const Oracle cur{"cur", make_cur};

}  // namespace kv::reference::policy
