// A NaN anywhere makes a metric NaN: a wrong answer must never look like a small error.
#include "harness/metrics.h"

#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace kv {
namespace {

using Values = std::span<const double>;

Eigen::Map<const Eigen::ArrayXd> array(Values values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}

void require_same_size(Values got, Values want) {
  if (got.size() != want.size()) {
    throw std::logic_error("metrics: " + std::to_string(got.size()) + " values against " +
                           std::to_string(want.size()));
  }
}

double max_abs(Values got, Values want) {
  require_same_size(got, want);
  if (got.empty()) return 0;
  return (array(got) - array(want)).abs().maxCoeff<Eigen::PropagateNaN>();
}

double rel_l2(Values got, Values want) {
  require_same_size(got, want);
  const double difference = (array(got) - array(want)).matrix().stableNorm();
  const double size = array(want).matrix().stableNorm();
  return difference == 0 ? 0 : difference / size;  // infinite where all of `want` is zero
}

double cosine(Values got, Values want) {
  require_same_size(got, want);
  const auto a = array(got).matrix();
  const auto b = array(want).matrix();
  const double norms = a.norm() * b.norm();
  if (norms == 0) return a.norm() == b.norm() ? 1 : 0;
  return a.dot(b) / norms;
}

// A zero of `want` adds nothing; a zero of `got` under a positive `want` makes it infinite, as it should be
// for a token that was needed and evicted.
double attn_kl(Values got, Values want) {
  require_same_size(got, want);
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == 0) {
      sum += 0 * got[i];
    } else {
      sum += got[i] == 0 ? std::numeric_limits<double>::infinity() : want[i] * std::log(want[i] / got[i]);
    }
  }
  return sum;
}

constexpr Metric kMetrics[] = {
    {"err_max_abs", "1", "lower", "largest absolute difference from FP64", max_abs},
    {"err_rel_l2", "1", "lower", "L2 norm of the difference over the L2 norm of FP64", rel_l2},
    {"err_cosine", "1", "higher", "cosine similarity to FP64; 1 is best", cosine},
    {"err_attn_kl", "nat", "lower", "KL(cache || FP64) of the attention distribution, mean over heads",
     attn_kl},
};

}  // namespace

std::span<const Metric> metrics() { return kMetrics; }

}  // namespace kv
