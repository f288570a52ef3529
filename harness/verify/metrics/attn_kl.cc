// Kullback-Leibler divergence of attention distributions, KL(want || got) in nats. A NaN anywhere makes it NaN.
//
// A zero of `want` adds nothing. A zero of `got` under a positive `want` makes it infinite: a needed token was
// evicted.
#include <cmath>
#include <limits>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_attn_kl(std::span<const double> got, std::span<const double> want) {
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

}  // namespace

const Metric attn_kl{
    .column = {"err_attn_kl", "nats", "KL(cache || FP64) of the attention distribution, mean over heads"},
    .better = "lower",
    .of = Metric::Of::kAttention,
    .over = Metric::Over::kMean,
    .compute = compute_attn_kl,
};

}  // namespace kv::verify::metric
