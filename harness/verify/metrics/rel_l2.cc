// The L2 norm of the difference over that of FP64. A NaN anywhere makes it NaN.
#include <Eigen/Core>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_rel_l2(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  const auto size = static_cast<Eigen::Index>(got.size());
  const Eigen::Map<const Eigen::ArrayXd> a(got.data(), size), b(want.data(), size);
  const double difference = (a - b).matrix().stableNorm(), norm = b.matrix().stableNorm();
  return difference == 0 ? 0 : difference / norm;  // infinite if all of `want` is zero
}

}  // namespace

const Metric rel_l2{
    .column =
        results::NumberColumn{"err_rel_l2", "1", "L2 norm of the difference over the L2 norm of FP64"}.called(
            "error, rel. L2"),
    .better = "lower",
    .of = Metric::Of::kOutputs,
    .over = Metric::Over::kMean,
    .compute = compute_rel_l2,
};

}  // namespace kv::verify::metric
