#include "harness/math/stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "harness/math/random.h"

namespace kv::math {
namespace {

constexpr int kResamples = 2000;
constexpr uint64_t kSeed = 20231;
constexpr double kLowPercent = 2.5, kHighPercent = 97.5;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

double sorted_percentile(std::span<const double> sorted, double p) {
  const double rank = p / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

// The middle 95 % of what `statistic(resample number)` gives.
template <typename Statistic>
ConfidenceInterval bootstrap(Statistic statistic) {
  std::vector<double> values(kResamples);
  for (int i = 0; i < kResamples; ++i) values[static_cast<size_t>(i)] = statistic(static_cast<uint64_t>(i));
  std::sort(values.begin(), values.end());
  return {sorted_percentile(values, kLowPercent), sorted_percentile(values, kHighPercent)};
}

}  // namespace

double percentile(std::span<const double> samples, double p) {
  require(!samples.empty() && p >= 0 && p <= 100, "percentile: needs samples and 0 <= p <= 100");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted_percentile(sorted, p);
}

double median(std::span<const double> samples) { return percentile(samples, 50); }

std::vector<double> repetition_medians(std::span<const std::vector<double>> repetitions) {
  std::vector<double> medians;
  for (const std::vector<double>& samples : repetitions) medians.push_back(median(samples));
  return medians;
}

double mean_of(std::span<const Stretch> stretches) {
  require(!stretches.empty(), "mean_of: needs stretches");
  double sum = 0, count = 0;
  for (const Stretch& s : stretches) {
    sum += s.sum;
    count += s.count;
  }
  return sum / count;
}

// The standard error of a ratio of sums: the spread of what each stretch adds to it, sum - mean * count.
double standard_error(std::span<const Stretch> stretches) {
  const double mean = mean_of(stretches), n = static_cast<double>(stretches.size());
  if (stretches.size() < kMinSamples) return std::numeric_limits<double>::infinity();
  double squares = 0, count = 0;
  for (const Stretch& s : stretches) {
    squares += (s.sum - mean * s.count) * (s.sum - mean * s.count);
    count += s.count;
  }
  return std::sqrt(squares * n / (n - 1)) / count;
}

ConfidenceInterval mean_interval(std::span<const Stretch> stretches) {
  require(!stretches.empty(), "mean_interval: needs stretches");
  constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  if (stretches.size() < kMinSamples) return {-kUnbounded, kUnbounded};
  return bootstrap([&](uint64_t resample) {
    const uint64_t key = random::key({kSeed, resample});
    double sum = 0, count = 0;
    for (size_t i = 0; i < stretches.size(); ++i) {
      const Stretch& s = stretches[random::below(key, i, stretches.size())];
      sum += s.sum;
      count += s.count;
    }
    return sum / count;
  });
}

}  // namespace kv::math
