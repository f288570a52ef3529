#include "harness/math/clusters.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "harness/math/random.h"

namespace kv::math {
namespace {

constexpr uint64_t kClusterSeed = 20232;

}  // namespace

Clusters::Clusters(std::span<const int64_t> of_sample) {
  std::unordered_map<int64_t, int32_t> numbers;
  for (const int64_t cluster : of_sample)
    of_sample_.push_back(numbers.try_emplace(cluster, static_cast<int32_t>(numbers.size())).first->second);
  count_ = static_cast<int64_t>(numbers.size());
}

ConfidenceInterval Clusters::percentile_interval(std::span<const double> samples, double p) const {
  if (samples.size() != of_sample_.size()) throw std::logic_error("percentile_interval: a cluster a sample");
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  if (count_ < kMinSamples) return {-kUnbounded, kUnbounded};
  std::vector<size_t> falling(samples.size());
  std::iota(falling.begin(), falling.end(), size_t{0});
  std::sort(falling.begin(), falling.end(), [&](size_t a, size_t b) { return samples[a] > samples[b]; });
  std::vector<int64_t> size(static_cast<size_t>(count_)), drawn(static_cast<size_t>(count_));
  for (const int32_t cluster : of_sample_) ++size[static_cast<size_t>(cluster)];
  const int64_t resamples = std::clamp<int64_t>(200000000 / std::ssize(samples), 200, 2000);
  std::vector<double> values;
  for (int64_t resample = 0; resample < resamples; ++resample) {
    const uint64_t key = random::key({kClusterSeed, static_cast<uint64_t>(resample)});
    std::fill(drawn.begin(), drawn.end(), 0);
    int64_t all = 0;
    for (uint64_t i = 0; i < drawn.size(); ++i) {
      const uint64_t cluster = random::below(key, i, drawn.size());
      ++drawn[cluster];
      all += size[cluster];
    }
    const double above = (1.0 - p / 100.0) * static_cast<double>(all - 1);
    int64_t seen = 0;
    size_t at = 0;
    for (; at + 1 < falling.size(); ++at) {
      seen += drawn[static_cast<size_t>(of_sample_[falling[at]])];
      if (static_cast<double>(seen) > above) break;
    }
    values.push_back(samples[falling[at]]);
  }
  return {percentile(values, 2.5), percentile(values, 97.5)};
}

ConfidenceInterval Clusters::mean_interval(std::span<const double> samples) const {
  if (samples.size() != of_sample_.size()) throw std::logic_error("mean_interval: a cluster a sample");
  std::vector<Stretch> stretches(static_cast<size_t>(count_), Stretch{0.0, 0.0});
  for (size_t i = 0; i < samples.size(); ++i) {
    Stretch& stretch = stretches[static_cast<size_t>(of_sample_[i])];
    stretch.sum += samples[i];
    stretch.count += 1.0;
  }
  return math::mean_interval(stretches);
}

}  // namespace kv::math
