// The one table of error metrics. A new metric is one new file and one line here, in the order of the columns in
// cells.csv.
#pragma once

#include <array>

#include "harness/verify/metrics/metrics.h"

// X(cosine) is kv::verify::metric::cosine of cosine.cc.
#define KVLAB_METRICS(X) \
  X(max_abs)             \
  X(rel_l2)              \
  X(cosine)              \
  X(attn_kl)             \
  X(attn_mass)           \
  X(attn_recall)         \
  // the end of the metrics

namespace kv::verify {

namespace metric {
#define KVLAB_DECLARE(name) extern const Metric name;
KVLAB_METRICS(KVLAB_DECLARE)
#undef KVLAB_DECLARE
}  // namespace metric

#define KVLAB_ADDRESS(name) &metric::name,
inline constexpr std::array kMetrics{KVLAB_METRICS(KVLAB_ADDRESS)};
#undef KVLAB_ADDRESS

}  // namespace kv::verify
