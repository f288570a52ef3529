#include "harness/math/proportions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace kv::math {

ConfidenceInterval wilson_interval(int64_t successes, int64_t trials) {
  if (trials < 1 || successes < 0 || successes > trials) throw std::logic_error("no such proportion");
  constexpr double kNormal = 1.959963984540054;  // 97.5th percentile of N(0, 1)
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
  for (int64_t i = 0; i <= fewer; ++i) {
    const double of = static_cast<double>(n), chosen = static_cast<double>(i);
    sum += std::exp(std::lgamma(of + 1) - std::lgamma(chosen + 1) - std::lgamma(of - chosen + 1) -
                    of * std::log(2.0));
  }
  return std::min(1.0, 2 * sum);
}

}  // namespace kv::math
