// Intervals of medians of times, and verdicts on their ratios.
//
// One value a repetition: steps inside one share its clock, its neighbours and its memory layout, are correlated, and
// would give intervals that are far too narrow. A percentile bootstrap of a median of so few values is too narrow
// (at 7 repetitions it covers 87 %), since it can only give one of the values. So Student's
// interval is taken of the logarithms of the repetitions' medians (times are skewed to the right), around their median, which
// scatters more than a mean. Of n times, with s the standard deviation of their logarithms:
//
//   median · exp(± t w s / sqrt(n))     t: Student's of n - 1 degrees; w = sqrt(pi / 2) (1 - 0.58 / n), of an even n 0.85
//
// and no end lies further out than least² / median and most² / median. A ratio has Welch's interval, of the variances
// w² s² / n of both sides, and is not cut. tests/harness/math/coverage_test.cc measures what they cover.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/math/stats.h"

namespace kv::math {

inline constexpr double kConfidence = 0.95;

// The number that Student's t of this many degrees of freedom (any positive number) exceeds, in either direction, with
// probability 1 - confidence.
double student_quantile(double confidence, double degrees);

// The interval of the median of positive times, one a repetition. Fewer than kMinSamples of them give (-infinity, infinity).
ConfidenceInterval median_interval(std::span<const double> times, double confidence = kConfidence);

// The interval of the mean of positive values, each drawn for itself: Student's, of the logarithm of the mean, whose standard error
// is that of the mean over the mean. So it contains the mean, and no end is negative. Fewer than kMinSamples give (-infinity, infinity).
ConfidenceInterval interval_of_mean(std::span<const double> values, double confidence = kConfidence);

// median(a) / median(b), of independent positive times, one a repetition.
struct Ratio {
  double value;
  double standard_error;  // that of log(value)
  double degrees;         // degrees of freedom; 0 where a side has fewer than kMinSamples times
  // (-infinity, infinity) without degrees of freedom.
  ConfidenceInterval interval(double confidence = kConfidence) const;
  // The probability of a ratio as far from 1 as this if the true one is 1; 1 without degrees of freedom.
  double p_value() const;
};
Ratio ratio_of_medians(std::span<const double> a, std::span<const double> b);

struct Estimate {
  double value;
  ConfidenceInterval interval;
};
// A statistic of several sides, as "concat / doubling - 1". Sides of as many values as each other belong together by
// index, as repetitions of one sweep point and seeds of one workload do: the estimate is the median of the
// statistic's values at each index, with Student's interval. For unlike sides it is the statistic of their medians; each moves it
// alone, and the variances add up (Welch). Logarithms are taken where all is positive. A side of one value is exact; with nothing
// else the interval is the value. A side of 2 to kMinSamples - 1 values gives (-infinity, infinity).
Estimate estimate(std::span<const std::vector<double>> sides,
                  const std::function<double(std::span<const double> medians)>& statistic);

enum class Verdict { kFaster, kSlower, kAmbiguous };
// Is a, a time, faster or slower than b? Ambiguous where the ratio's interval contains 1.
Verdict compare(const ConfidenceInterval& a_over_b);
// "faster", "slower" or "ambiguous".
const char* text_of(Verdict verdict);

// Holm's method (1979): the confidence at which each comparison's interval is to be taken, so that all verdicts that
// compare() gives on them are right together with probability `confidence`. One comparison keeps it.
std::vector<double> holm_confidences(std::span<const double> p_values, double confidence = kConfidence);

}  // namespace kv::math
