// The share of FP64's attention over all tokens that lies on the tokens read by the cache's attention. A NaN anywhere
// makes it NaN.
#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_attn_mass(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  double mass = 0;
  for (size_t i = 0; i < got.size(); ++i) mass += want[i] == 0 ? 0 * got[i] : got[i];
  return mass;
}

}  // namespace

const Metric attn_mass{
    .column = {"err_attn_mass", "1",
               "share of FP64's attention over all tokens that lies on the tokens read, mean over heads; 1 "
               "is best"},
    .better = "higher",
    .of = Metric::Of::kAttention,
    .over = Metric::Over::kMean,
    .compute = compute_attn_mass,
};

}  // namespace kv::verify::metric
