// Bootstrap intervals for samples that come in independent clusters, such as the requests of sessions or of minutes: whole
// clusters are drawn again (Field and Welsh 2007). Percentile bootstraps of 95 % under a fixed seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/math/stats.h"

namespace kv::math {

class Clusters {
 public:
  // The cluster of each sample, any numbers.
  explicit Clusters(std::span<const int64_t> of_sample);
  int64_t count() const { return count_; }
  // The interval of the p-th percentile of `samples`, one for each number given, by nearest ranks. Infinite for fewer than
  // kMinSamples clusters. With many samples fewer resamples are taken, 200 at least.
  ConfidenceInterval percentile_interval(std::span<const double> samples, double p) const;
  // The interval of their mean.
  ConfidenceInterval mean_interval(std::span<const double> samples) const;

 private:
  std::vector<int32_t> of_sample_;  // from 0
  int64_t count_ = 0;
};

}  // namespace kv::math
