// The largest absolute difference. A NaN anywhere makes it NaN.
#include <Eigen/Core>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_max_abs(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  if (got.empty()) return 0;
  const auto size = static_cast<Eigen::Index>(got.size());
  const Eigen::Map<const Eigen::ArrayXd> a(got.data(), size), b(want.data(), size);
  return (a - b).abs().maxCoeff<Eigen::PropagateNaN>();
}

}  // namespace

const Metric max_abs{
    .column =
        {"err_max_abs", "1",
         "largest absolute difference of the attention output from FP64 over all tokens before encoding"},
    .better = "lower",
    .of = Metric::Of::kOutputs,
    .over = Metric::Over::kLargest,
    .compute = compute_max_abs,
};

}  // namespace kv::verify::metric
