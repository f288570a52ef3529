#include "harness/math/proportions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace kv::math {
namespace {

constexpr double kNormal = 1.959963984540054;  // 97.5th percentile of N(0, 1)

double log_choose(int64_t of, int64_t chosen) {
  const auto log_factorial = [](int64_t n) { return std::lgamma(static_cast<double>(n + 1)); };
  return log_factorial(of) - log_factorial(chosen) - log_factorial(of - chosen);
}

}  // namespace

ConfidenceInterval wilson_interval(int64_t successes, int64_t trials) {
  if (trials < 1 || successes < 0 || successes > trials) throw std::logic_error("no such proportion");
  const double n = static_cast<double>(trials), p = static_cast<double>(successes) / n,
               z = kNormal * kNormal / n;
  const double middle = p + z / 2, half = kNormal * std::sqrt(p * (1 - p) / n + z / (4 * n));
  // Rounding must not leave [0, 1], nor exclude a proportion of 0 or 1.
  return {successes == 0 ? 0.0 : std::max(0.0, (middle - half) / (1 + z)),
          successes == trials ? 1.0 : std::min(1.0, (middle + half) / (1 + z))};
}

double mcnemar_p(int64_t only_first, int64_t only_second) {
  const int64_t fewer = std::min(only_first, only_second), n = only_first + only_second;
  double sum = 0;
  for (int64_t i = 0; i <= fewer; ++i)
    sum += std::exp(log_choose(n, i) - static_cast<double>(n) * std::log(2.0));
  return std::min(1.0, 2 * sum);
}

ConfidenceInterval paired_difference_interval(int64_t only_first, int64_t only_second, int64_t pairs) {
  if (pairs < 1 || only_first < 0 || only_second < 0 || only_first + only_second > pairs)
    throw std::logic_error("no such pairs");
  const double b = static_cast<double>(only_first), c = static_cast<double>(only_second),
               n = static_cast<double>(pairs), middle = (b - c) / n;
  // The score of a difference falls as the difference grows; `second` is the likeliest probability of the second alone.
  const auto score = [&](double difference) {
    const double half = (b + c - (2 * n - b + c) * difference) / (4 * n),
                 second = half + std::sqrt(half * half + c * difference * (1 - difference) / (2 * n));
    return (b - c - n * difference) / std::sqrt(n * (2 * second + difference * (1 - difference)));
  };
  const auto end = [&](double outside, double wanted) {
    double inside = middle;
    for (int i = 0; i < 60; ++i) {
      const double between = (inside + outside) / 2;
      (std::abs(score(between)) < wanted ? inside : outside) = between;
    }
    return inside;
  };
  return {end(-1, kNormal), end(1, kNormal)};
}

double stratified_p(std::span<const Stratum> strata) {
  int64_t sum = 0;
  std::vector<double> chances{1};  // of each sum of `first`
  for (const Stratum& s : strata) {
    sum += s.first;
    const int64_t both = s.first + s.second;
    std::vector<double> more(chances.size() + static_cast<size_t>(s.trials));
    for (int64_t first = std::max<int64_t>(0, both - s.trials); first <= std::min(both, s.trials); ++first) {
      const double chance = std::exp(log_choose(s.trials, first) + log_choose(s.trials, both - first) -
                                     log_choose(2 * s.trials, both));
      for (size_t i = 0; i < chances.size(); ++i) more[i + static_cast<size_t>(first)] += chances[i] * chance;
    }
    chances = std::move(more);
  }
  const auto at = chances.begin() + sum;
  return std::min(1.0, 2 * std::min(std::accumulate(chances.begin(), at + 1, 0.0),
                                    std::accumulate(at, chances.end(), 0.0)));
}

std::vector<bool> decidable(std::span<const double> least_p_values, double level) {
  for (int64_t k = 1;; ++k) {
    const double most = level / static_cast<double>(k);
    const auto reach = [&](double p) { return p <= most; };
    if (std::ranges::count_if(least_p_values, reach) > k) continue;
    std::vector<bool> can_be;
    for (const double p : least_p_values) can_be.push_back(reach(p));
    return can_be;
  }
}

}  // namespace kv::math
