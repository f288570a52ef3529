// Recall of the true top k: the share of the k tokens with FP64's largest attention weights that are among the k
// tokens read. A NaN among FP64's weights makes it NaN.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "harness/verify/metrics/list.h"

namespace kv::verify::metric {
namespace {

double compute_attn_recall(std::span<const double> got, std::span<const double> want) {
  require_same_size(got, want);
  if (std::any_of(got.begin(), got.end(), [](double p) { return std::isnan(p); }))
    return std::numeric_limits<double>::quiet_NaN();
  const auto is_read = [&](size_t i) { return want[i] != 0; };
  std::vector<size_t> order(got.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto read = std::count_if(order.begin(), order.end(), is_read);
  if (read == 0) return 0;
  // Equal weights rank read tokens first: either is a true top k.
  std::nth_element(order.begin(), order.begin() + (read - 1), order.end(), [&](size_t a, size_t b) {
    if (got[a] != got[b]) return got[a] > got[b];
    return is_read(a) && !is_read(b);
  });
  return static_cast<double>(std::count_if(order.begin(), order.begin() + read, is_read)) /
         static_cast<double>(read);
}

}  // namespace

const Metric attn_recall{
    .column = {"err_attn_recall", "1",
               "share of the k tokens with the most FP64 attention that are among the k tokens read, mean "
               "over heads; 1 is best"},
    .better = "higher",
    .of = Metric::Of::kAttention,
    .over = Metric::Over::kMean,
    .compute = compute_attn_recall,
};

}  // namespace kv::verify::metric
