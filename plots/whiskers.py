"""Dots with whiskers and bars in the cells of a table, as SVG, all of a column on one axis."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 120, 18  # pixels
EDGE = 8  # pixels beside the axis: half a tick's label
FAR = 3  # times the furthest value: beyond it a whisker says only that the times were noise, and would squeeze all others
DIGITS = (1, 5, 2, 3, 7, 4, 6, 8, 9, 1.5, 1.2)  # of ticks, the roundest first
LINEAR = 1e-3  # of a change that may be negative: the axis is linear below, logarithmic beyond


@dataclass(frozen=True)
class Axis:
    low: float
    high: float
    mark: float | None  # a line through all rows: the baseline
    bend: Callable[[float], float]

    @property
    def is_log(self) -> bool:
        return self.bend is math.log

    def at(self, value: float) -> float:
        """Pixels from the left; what lies outside is drawn at the edge."""
        low, high, here = (self.bend(x) for x in (self.low, self.high, min(max(value, self.low), self.high)))
        return EDGE + (WIDTH - 2 * EDGE) * (here - low) / (high - low or 1)

    def ticks(self) -> list[float]:
        """Round numbers inside, the mark among them, whose labels do not meet; decades first."""
        wanted = [self.mark, 0.0, *(sign * digit * 10.0**power for digit in DIGITS for sign in (1, -1) for power in range(-12, 9))]
        inside = [tick for tick in wanted if tick is not None and self.low <= tick <= self.high and (tick > 0 or not self.is_log)]
        shown: list[float] = []
        for tick in inside:
            if all(abs(self.at(tick) - self.at(other)) > 4 + 3.2 * (len(label(tick)) + len(label(other))) for other in shown):
                shown.append(tick)
        return sorted(shown)


def label(tick: float) -> str:
    return f"{tick:g}" if tick == 0 or 1e-3 <= abs(tick) < 1e4 else f"{tick:.0e}".replace("e-0", "e-").replace("e+0", "e")


def bent(value: float) -> float:
    return math.asinh(value / LINEAR)


SHARES = Axis(0.0, 1.0, None, float)  # of a whole


def axis_of(values: Iterable[tuple[float, float, float]], mark: float | None = None, signed: bool = False) -> Axis | None:
    """An axis for all of these (value, low, high); None where there is nothing to tell apart."""
    rows = [row for row in values if signed or row[0] > 0]
    middles = [row[0] for row in rows] + ([] if mark is None else [mark])
    if len(set(middles)) < 2:
        return None
    low, high = min(middles), max(middles)
    if signed:
        return Axis(min(row[1] for row in rows), max(row[2] for row in rows), mark, bent)
    low = max(min([low, *(row[1] for row in rows if row[1] > 0)]), low / FAR)
    return Axis(low / 1.05, 1.05 * min(max([high, *(row[2] for row in rows)]), high * FAR), mark, math.log)


def drawing(inside: str, words: str = "") -> Markup:
    named = f' role="img" aria-label="{escape(words)}"' if words else ' aria-hidden="true"'
    return Markup(f'<svg class="dots" viewBox="0 0 {WIDTH} {HEIGHT}"{named}>{inside}</svg>')


def mark_of(axis: Axis) -> str:
    return "" if axis.mark is None else f'<path class="one" d="M{axis.at(axis.mark):.1f} 0v{HEIGHT}"/>'


def dot(axis: Axis, reach: tuple[float, float, float], kind: str, words: str) -> Markup:
    """A dot with its interval; `kind` is the class that colours it."""
    value, low, high = (axis.at(max(end, axis.low)) for end in reach)
    whisker = f'<path class="whisker" d="M{low:.1f} 9H{high:.1f}"/>' if high > low else ""
    return drawing(f'{mark_of(axis)}<g class="{escape(kind)}">{whisker}<circle cx="{value:.1f}" cy="9" r="4"/></g>', words)


def scale(axis: Axis) -> Markup:
    """The axis itself, for the heading."""
    ticks = "".join(f'<path d="M{axis.at(tick):.1f} 13v5"/><text x="{axis.at(tick):.1f}" y="10">{label(tick)}</text>' for tick in axis.ticks())
    return drawing(f'<path d="M{EDGE} 17.5H{WIDTH - EDGE}"/>{ticks}')


def bar(value: float, most: float) -> Markup:
    return Markup(f'<span class="bar" aria-hidden="true"><i style="width:{100 * value / most if most else 0:.1f}%"></i></span>')
