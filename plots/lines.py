"""Lines through step times whose errors are a share of them, and the length at which two lines cross.

The rule of the terminal's summary, computed here again from the same cells: harness/math/lines.h and harness/experiments/break_even.h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_HELD_OUT = 0.25  # a line that misses a length left out by more describes no steps
CONFIDENCE = 0.95
Point = tuple[float, float]  # tokens, time


@dataclass(frozen=True)
class Line:
    intercept: float
    slope: float
    # Of intercept, of both, and of slope, each over the square of an error's standard deviation.
    variances: tuple[float, float, float]
    squares: float  # sum of the squared errors, as shares
    degrees: int

    def at(self, tokens: float) -> float:
        return self.intercept + self.slope * tokens


@dataclass(frozen=True)
class Crossing:
    at: float
    low: float
    high: float


def student(degrees: int) -> float:
    """The t that Student's distribution of this many degrees stays within with 95 % (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if within(angle, degrees) < CONFIDENCE else (low, angle)
    return math.sqrt(degrees) * math.tan(low)


def within(angle: float, degrees: int) -> float:
    odd, square = degrees % 2, math.cos(angle) ** 2
    term = total = 1.0
    for n in range(2 + odd, degrees, 2):
        term *= (n - 1) / n * square
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * math.cos(angle) * total if degrees > 1 else 0))


def fit_line(points: list[Point]) -> Line | None:
    """The least squares of errors as shares of the line's own values; None for fewer than three lengths, or a line that falls to 0."""
    if len({x for x, _ in points}) < 3:
        return None
    scales = [y for _, y in points]
    for _ in range(3):
        line = weighted(points, scales)
        scales = [line.at(x) for x, _ in points]
        if min(scales) <= 0:
            return None
    return line


def weighted(points: list[Point], scales: list[float]) -> Line:
    weights = [1 / scale**2 for scale in scales]
    w = sum(weights)
    mean_x, mean_y = (sum(weight * point[axis] for weight, point in zip(weights, points)) / w for axis in (0, 1))
    xx = sum(weight * (x - mean_x) ** 2 for weight, (x, _) in zip(weights, points))
    slope = sum(weight * (x - mean_x) * (y - mean_y) for weight, (x, y) in zip(weights, points)) / xx
    intercept = mean_y - slope * mean_x
    squares = sum(weight * (y - intercept - slope * x) ** 2 for weight, (x, y) in zip(weights, points))
    return Line(intercept, slope, (1 / w + mean_x**2 / xx, -mean_x / xx, 1 / xx), squares, len(points) - 2)


def trusted_line(points: list[Point]) -> Line | None:
    """The line of points each of which the line through all others predicts."""
    for out, (x, y) in enumerate(points):
        line = fit_line(points[:out] + points[out + 1 :])
        if line is None or line.at(x) <= 0 or abs(y / line.at(x) - 1) > MOST_HELD_OUT:
            return None
    return fit_line(points)


def crossing(a: Line, b: Line) -> Crossing | None:
    """Where two lines are equal, with Fieller's interval; None where no crossing at a positive length is certain."""
    degrees = a.degrees + b.degrees
    spread = student(degrees) ** 2 * (a.squares + b.squares) / degrees
    p, q = a.intercept - b.intercept, a.slope - b.slope
    of_intercepts, of_both, of_slopes = (spread * (one + other) for one, other in zip(a.variances, b.variances))
    square, half, rest = q * q - of_slopes, p * q - of_both, p * p - of_intercepts
    if square <= 0:
        return None
    root = math.sqrt(max(0.0, half * half - square * rest))
    found = Crossing(-p / q, (-half - root) / square, (-half + root) / square)
    return found if found.low > 0 else None
