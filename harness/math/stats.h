// Percentiles, and bootstrap intervals of means over many samples. Medians of a few values have those of medians.h.
//
// Intervals are percentile bootstraps (Efron 1979): 2000 resamples under a fixed seed, 95 %, so that the same samples
// always give the same interval.
#pragma once

#include <span>
#include <vector>

namespace kv::math {

// The p-th percentile, 0 <= p <= 100, linear between the two nearest ranks (NumPy's default): rank p / 100 (n
// - 1). No samples, or a p outside, is a bug (std::logic_error).
double percentile(std::span<const double> samples, double p);
double median(std::span<const double> samples);

// The median of every repetition's samples.
std::vector<double> repetition_medians(std::span<const std::vector<double>> repetitions);

struct ConfidenceInterval {
  double low, high;
  bool contains(double x) const { return low <= x && x <= high; }
};

// Fewer samples than this say nothing about their spread: intervals are then infinite.
inline constexpr int kMinSamples = 5;

// A run of neighbouring samples that go together, such as the losses of tokens that follow each other: the
// unit in which a mean over all of them is resampled.
struct Stretch {
  double sum, count;
};
// The mean over all samples; its standard error, and its bootstrap interval, with stretches as independent
// draws (infinite for fewer than kMinSamples of them). No stretches is a bug (std::logic_error).
double mean_of(std::span<const Stretch> stretches);
double standard_error(std::span<const Stretch> stretches);
ConfidenceInterval mean_interval(std::span<const Stretch> stretches);

}  // namespace kv::math
