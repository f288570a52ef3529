// The mean absolute difference from FP64.
#include <cmath>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_mean_abs(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  double sum = 0.0;
  for (size_t i = 0; i < got.size(); ++i) sum += std::abs(got[i] - want[i]);
  return got.empty() ? 0.0 : sum / static_cast<double>(got.size());
}

}  // namespace

const Metric mean_abs{
    .column = {"err_mean_abs", "1", "mean absolute difference of an output from FP64's"},
    .better = "lower",
    .of = Metric::Of::kOutputs,
    .over = Metric::Over::kMean,
    .compute = compute_mean_abs,
};

}  // namespace kv::verify::metric
