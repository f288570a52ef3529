#include "harness/math/lines.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "harness/math/medians.h"

namespace kv::math {
namespace {

constexpr int kRefits =
    3;  // weights come from the line itself: measured values would favour those that err low

double error_variance(double squares, int degrees) { return squares / degrees; }

// One fit with the weights 1 / scale².
Line weighted_line(std::span<const LinePoint> points, std::span<const double> scales) {
  double w = 0, wx = 0, wy = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double weight = 1 / (scales[i] * scales[i]);
    w += weight;
    wx += weight * points[i].x;
    wy += weight * points[i].y;
  }
  // Around the mean of x, or a sum of large squares would lose the difference.
  const double mean_x = wx / w, mean_y = wy / w;
  double xx = 0, xy = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double weight = 1 / (scales[i] * scales[i]), dx = points[i].x - mean_x;
    xx += weight * dx * dx;
    xy += weight * dx * (points[i].y - mean_y);
  }
  Line line;
  line.slope = xy / xx;
  line.intercept = mean_y - line.slope * mean_x;
  line.variance_slope = 1 / xx;
  line.covariance = -mean_x / xx;
  line.variance_intercept = 1 / w + mean_x * mean_x / xx;
  line.degrees = static_cast<int>(points.size()) - 2;
  for (size_t i = 0; i < points.size(); ++i) {
    const double error = (points[i].y - line.at(points[i].x)) / scales[i];
    line.squares += error * error;
  }
  return line;
}

}  // namespace

ConfidenceInterval Line::slope_interval() const {
  const double half =
      student_quantile(kConfidence, degrees) * std::sqrt(error_variance(squares, degrees) * variance_slope);
  return {slope - half, slope + half};
}

std::optional<Line> fit_line(std::span<const LinePoint> points) {
  std::set<double> places;
  std::vector<double> scales;
  for (const LinePoint& point : points) {
    places.insert(point.x);
    scales.push_back(point.y);
  }
  if (places.size() < 3) return std::nullopt;
  Line line;
  for (int i = 0; i < kRefits; ++i) {
    line = weighted_line(points, scales);
    for (size_t p = 0; p < points.size(); ++p) {
      scales[p] = line.at(points[p].x);
      if (!(scales[p] > 0)) return std::nullopt;
    }
  }
  return line;
}

std::optional<double> held_out_error(std::span<const LinePoint> points) {
  double largest = 0;
  for (size_t out = 0; out < points.size(); ++out) {
    std::vector<LinePoint> others(points.begin(), points.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(out));
    const std::optional<Line> line = fit_line(others);
    if (!line) return std::nullopt;
    const double predicted = line->at(points[out].x);
    if (!(predicted > 0)) return std::nullopt;
    largest = std::max(largest, std::abs(points[out].y / predicted - 1));
  }
  return largest;
}

std::optional<Crossing> crossing(const Line& a, const Line& b) {
  const int degrees = a.degrees + b.degrees;
  const double t = student_quantile(kConfidence, degrees);
  const double spread = t * t * error_variance(a.squares + b.squares, degrees);
  const double p = a.intercept - b.intercept, q = a.slope - b.slope;
  // All x at which p + q x is within t of its standard errors: a x² + 2 b x + c <= 0.
  const double square = q * q - spread * (a.variance_slope + b.variance_slope);
  const double half = p * q - spread * (a.covariance + b.covariance);
  const double rest = p * p - spread * (a.variance_intercept + b.variance_intercept);
  if (!(square > 0)) return std::nullopt;
  const double root =
      std::max(0.0, half * half - square * rest);  // at -p / q it is below 0, but for rounding
  const Crossing found{-p / q, {(-half - std::sqrt(root)) / square, (-half + std::sqrt(root)) / square}};
  return found.interval.low > 0 ? std::optional(found) : std::nullopt;
}

}  // namespace kv::math
