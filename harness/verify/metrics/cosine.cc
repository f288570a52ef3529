// Cosine similarity. A NaN anywhere makes it NaN.
#include <Eigen/Core>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_cosine(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  const auto size = static_cast<Eigen::Index>(got.size());
  const Eigen::Map<const Eigen::VectorXd> a(got.data(), size), b(want.data(), size);
  const double norms = a.norm() * b.norm();
  if (norms == 0) return a.norm() == b.norm() ? 1 : 0;
  return a.dot(b) / norms;
}

}  // namespace

const Metric cosine{
    .column = {"err_cosine", "1", "cosine similarity to FP64; 1 is best"},
    .better = "higher",
    .of = Metric::Of::kOutputs,
    .over = Metric::Over::kMean,
    .compute = compute_cosine,
};

}  // namespace kv::verify::metric
