#include "harness/verify/metrics/metrics.h"

#include <stdexcept>
#include <string>

#include "harness/verify/metrics/list.h"

namespace kv::verify {

std::span<const Metric* const> metrics() { return kMetrics; }

size_t metric_index(std::string_view name) {
  for (size_t i = 0; i < kMetrics.size(); ++i) {
    if (kMetrics[i]->column.name == name) return i;
  }
  throw std::logic_error("no metric '" + std::string(name) + "'");
}

void require_same_size(std::span<const double> got, std::span<const double> want) {
  if (got.size() != want.size()) {
    throw std::logic_error("metrics: " + std::to_string(got.size()) + " values against " +
                           std::to_string(want.size()));
  }
}

}  // namespace kv::verify
