// lagkv (arXiv:2504.04704): parts of `lag` tokens behind the sinks; within each, tokens rank by the spread of their rows' channels,
// scaled to the range of the next part. The last part and what follows stay, and so do the newest tokens of a short prompt.
#include <Eigen/Dense>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

// [lag]: softmax of the standard deviations of the part's rows from `first` on.
Eigen::ArrayXd spreads(const std::vector<std::span<const float>>& rows, int64_t first, int64_t lag) {
  const auto width = std::ssize(rows.front());
  Eigen::ArrayXXd part(lag, width), next(lag, width);
  for (int64_t i = 0; i < lag; ++i) {
    for (int64_t x = 0; x < width; ++x) {
      part(i, x) = rows[static_cast<size_t>(first + i)][static_cast<size_t>(x)];
      next(i, x) = rows[static_cast<size_t>(first + lag + i)][static_cast<size_t>(x)];
    }
  }
  const Eigen::ArrayXXd low = next.colwise().minCoeff().replicate(lag, 1),
                        high = next.colwise().maxCoeff().replicate(lag, 1);
  part = (part - low) / (high - low);
  part.colwise() -= Eigen::ArrayXd(part.rowwise().mean());
  const Eigen::ArrayXd weights =
      (part.square().rowwise().sum() / static_cast<double>(width - 1)).sqrt().exp();
  return weights / weights.sum();
}

std::unique_ptr<Rule> make_lagkv(const Parameters& p) {
  const int64_t sinks = parameter(p, "sinks"), lag = parameter(p, "lag");
  return cut_of(parameter(p, "budget"), [=](const auto& slots, const Prompt& prompt) {
    std::vector<double> scores(slots.size(), kInfinite);
    const int64_t parts = (prompt.tokens - sinks) / lag;
    for (int64_t i = sinks; parts < 2 && i < prompt.tokens; ++i)
      scores[static_cast<size_t>(i)] = static_cast<double>(i);
    for (int64_t part = 0; part + 1 < parts; ++part) {
      const int64_t first = sinks + part * lag;
      const Eigen::ArrayXd both = spreads(prompt.k, first, lag) + spreads(prompt.v, first, lag);
      for (int64_t i = 0; i < lag; ++i)
        scores[static_cast<size_t>(first + i)] = static_cast<double>((both < both[i]).count());
    }
    return scores;
  });
}

}  // namespace

const Oracle lagkv{"lagkv", make_lagkv};

}  // namespace kv::reference::policy
