"""Lines through step times and their crossings, as the chart and the terminal's summary have them; expected ones are computed here by
other means than plots/ has."""

from __future__ import annotations

from itertools import combinations

import pytest
from drawn import drawn, message, points
from support import PLOTS, specifications



def test_a_committed_run_is_drawn_as_its_summary_says_it():
    """kvlab summary results/epyc-2core/model: "from about 6420 tokens on (237–11800)"."""
    assert message(specifications(PLOTS.parent / "results/epyc-2core/model")[0]["break_even"]) == (
        "batch 1: f16 ring 4096 sinks 4 is faster than kivi 2-bit residual 128 from about "
        "6,420 tokens on (237–11,800)"
    )


T_OF_10_DEGREES = 2.228139  # two lines of seven lengths each


def line_of(own):
    """Intercept, slope, the inverse of the normal equations, and the squared errors: each is a share of the line."""
    scales = [time for _, time in own]
    for _ in range(3):
        a, b, d = (sum(tokens**power / scale**2 for (tokens, _), scale in zip(own, scales)) for power in (0, 1, 2))
        e, f = (sum(tokens**power * time / scale**2 for (tokens, time), scale in zip(own, scales)) for power in (0, 1))
        det = a * d - b * b
        intercept, slope = (d * e - b * f) / det, (a * f - b * e) / det
        squares = sum(((time - intercept - slope * tokens) / scale) ** 2 for (tokens, time), scale in zip(own, scales))
        scales = [intercept + slope * tokens for tokens, _ in own]
    return intercept, slope, (d / det, -b / det, a / det), squares


def ends_of(one, other, at):
    """The farthest lengths on both sides at which the lines may be equal, found by halving."""
    variance = (one[3] + other[3]) / 10

    def may_be_equal(x):
        far = one[0] - other[0] + (one[1] - other[1]) * x
        spread = sum(line[2][0] + 2 * x * line[2][1] + x * x * line[2][2] for line in (one, other))
        return far * far <= T_OF_10_DEGREES**2 * variance * spread

    for beyond in (0.0, 100 * at):
        inside = at
        for _ in range(100):
            middle = (inside + beyond) / 2
            inside, beyond = (middle, beyond) if may_be_equal(middle) else (inside, middle)
        yield inside


def test_lines_cross_where_they_do(charts):
    spec, files = charts["break_even"]
    own = {}
    for row in files.of("decode"):
        own.setdefault(row["variant"], []).append((row["seq_len"], row["step_p50_us"]))
    assert drawn(spec, "point", "color", "x", "y") == points((name, *at) for name, each in own.items() for at in each)
    lines = {name: line_of(each) for name, each in own.items()}
    for name, tokens, time in drawn(spec, "line", "color", "x", "y"):
        assert time == pytest.approx(lines[name][0] + lines[name][1] * tokens, rel=1e-6)
    marked = {(row["variant"], row["before"]): row for row in spec["data"]["values"] if row["crosses"]}
    assert len(marked) == len(lines) == 3
    for one, other in combinations(lines, 2):
        after, before = sorted((one, other), key=lambda name: lines[name][1])
        row = marked[after, before]
        at = (lines[after][0] - lines[before][0]) / (lines[before][1] - lines[after][1])
        low, high = ends_of(lines[one], lines[other], at)
        assert (row["tokens"], row["low"], row["high"]) == pytest.approx((at, low, high), rel=1e-5)
        assert 0.8 < low / at < 1 < high / at < 1.25, "noise of 3 %"
        said = [round(float(f"{value:.3g}")) for value in (at, low, high)]
        assert row["said"] == "{:,} tokens ({:,}–{:,})".format(*said)
    drawn_at = points((row["low"], row["high"], row["us"]) for row in marked.values())
    assert drawn(spec, "rule", "x", "x2", "y") == drawn_at
