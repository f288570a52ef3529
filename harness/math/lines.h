// Lines through times whose errors are a share of them, as a step's in its length, and the length at which two lines cross.
#pragma once

#include <optional>
#include <span>

#include "harness/math/stats.h"

namespace kv::math {

struct LinePoint {
  double x, y;  // y > 0
};

// y = intercept + slope x. Each error is a share of y, of one unknown standard deviation for all points.
struct Line {
  double intercept = 0, slope = 0;
  // Of intercept, of both, and of slope, each over the square of that standard deviation.
  double variance_intercept = 0, covariance = 0, variance_slope = 0;
  double squares = 0;  // sum of the squared errors, as shares
  int degrees = 0;     // points less 2

  double at(double x) const { return intercept + slope * x; }
  ConfidenceInterval slope_interval() const;  // Student's
};

// The least squares of errors as shares of the line's own values. Empty for fewer than 3 points, of fewer than 3 different x, or a line
// that is not positive at all of them.
std::optional<Line> fit_line(std::span<const LinePoint> points);

// The largest |y / line - 1| of a point that the line through all others predicts; empty where a line is missing.
std::optional<double> held_out_error(std::span<const LinePoint> points);

struct Crossing {
  double at;
  ConfidenceInterval interval;  // 95 %
};
// Where two lines with errors of one size are equal, with Fieller's interval (1954) of a ratio of two correlated normal values. Empty
// where no crossing at a positive x is certain.
std::optional<Crossing> crossing(const Line& a, const Line& b);

}  // namespace kv::math
