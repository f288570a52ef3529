// Integrals over the normal distribution; the error of a grid follows from the range that it must cover.
#include "variants/codec/expected_error.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

namespace kv {
namespace {

// How far a measured error may lie from the expected one. Rounding down instead of to nearest doubles the
// error, a lost bit doubles it too; both are outside for any fixed size of the grid, and for head_dim 32…512
// together.
constexpr double kSlack = 0.1;

double normal_below(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI); }

template <class F>
double integral(double from, double to, int steps, F f) {
  const double step = (to - from) / steps;
  double sum = 0.0;
  for (int i = 0; i < steps; ++i) sum += f(from + (i + 0.5) * step);
  return sum * step;
}

// Expected max - min of n numbers (Tippett 1925), and their expected largest magnitude.
double expected_range(int n) {
  return integral(-7.0, 7.0, 280, [n](double x) {
    return 1.0 - std::pow(normal_below(x), n) - std::pow(normal_below(-x), n);
  });
}
double expected_magnitude(int n) {
  return integral(0.0, 7.0, 140, [n](double x) { return 1.0 - std::pow(2.0 * normal_below(x) - 1.0, n); });
}

// Root mean square of x - (nearest of `levels` points, `step` apart, centred on 0) of numbers that all lie
// between the first and the last point, as those that a grid was made for do.
double grid_error(double step, int levels) {
  // Between fine points the density is flat, so the error is uniform over a step.
  if (levels > 8) return step / std::sqrt(12.0);
  const double last = 0.5 * step * (levels - 1);
  const double squares = integral(-last, last, 1400, [&](double x) {
    const double off = x + last - step * std::nearbyint((x + last) / step);
    return off * off * normal_density(x);
  });
  return std::sqrt(squares / (2.0 * normal_below(last) - 1.0));
}

// Those `exact` of n numbers that define the grid lie on it.
double share(int exact, int n) { return std::sqrt(1.0 - static_cast<double>(exact) / n); }

Interval between(double a, double b) {
  return {std::min(a, b) * (1.0 - kSlack), std::max(a, b) * (1.0 + kSlack)};
}

double affine(int bits, int n) {
  const int levels = 1 << bits;
  return share(2, n) * grid_error(expected_range(n) / (levels - 1), levels);
}

double symmetric(int bits, int n) {
  const int top = (1 << (bits - 1)) - 1;
  return share(1, n) * grid_error(expected_magnitude(n) / top, 2 * top + 1);
}

// The integrals take 0.1 ms, and whoever reads a spec asks for them: each is computed once.
template <double (*error)(int bits, int n)>
Interval known_between(int bits, GridSize size) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int>, Interval> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({bits, size.fewest, size.most});
  if (is_new) found->second = between(error(bits, size.fewest), error(bits, size.most));
  return found->second;
}

}  // namespace

Interval affine_error(int bits, GridSize size) { return known_between<affine>(bits, size); }
Interval symmetric_error(int bits, GridSize size) { return known_between<symmetric>(bits, size); }

}  // namespace kv
