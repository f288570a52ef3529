// Percentiles and bootstrap intervals: what turns samples of time into a statement, or into "ambiguous".
//
// Intervals are percentile bootstraps of the median (Efron 1979): 2000 resamples under a fixed seed, 95 %, so
// that the same samples always give the same interval. Steps inside one repetition share its clock, its
// neighbours and its memory layout; they are correlated and would give intervals that are far too narrow. So
// give these functions one value a repetition: repetition_medians.
#pragma once

#include <functional>
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

// Fewer samples than this say nothing about their spread: the intervals below are then infinite. With 5 the
// widest bootstrap interval, minimum to maximum, holds the true median with 94 % (1 - 2 / 2^5).
inline constexpr int kMinSamples = 5;

ConfidenceInterval median_interval(std::span<const double> samples);

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

enum class Pairing {
  kIndependent,    // each side is resampled by itself
  kPairedByIndex,  // a[i] and b[i] were taken next to each other: both sides are resampled with the same
                   // indices
};

struct Ratio {
  double value;  // median(a) / median(b)
  ConfidenceInterval interval;
};
// Samples must be positive; paired ones equal in number (std::logic_error otherwise).
Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b, Pairing pairing);

struct Estimate {
  double value;
  ConfidenceInterval interval;
};
// A statistic of the medians of several sides, as "concat / doubling - 1". Sides of one value are exact: with
// nothing else the interval is the value. Equal numbers of samples are paired by index, as repetitions of one
// block and seeds of one workload are.
Estimate estimate(std::span<const std::vector<double>> sides,
                  const std::function<double(std::span<const double> medians)>& statistic);

enum class Verdict { kFaster, kSlower, kAmbiguous };
// Is a, a time, faster or slower than b? Ambiguous where the ratio's interval contains 1.
Verdict compare(const Ratio& a_over_b);

}  // namespace kv::math
