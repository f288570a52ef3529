"""The lengths from which one cache's steps are faster than another's."""

from __future__ import annotations

import math
from itertools import combinations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from labels import with_end_labels
from known import heading
from lines import Crossing, Line, crossing, trusted_line
from marks import click_focus, in_focus, panel_height, panels, text, tips
from messages import place, titled
from prepare import NoData, drawable, with_panel
from style import INK, length_axis, log_axis, microseconds_text

EXPERIMENTS = ["decode", "model"]  # whose steps are steady at a length
MOST_MARKED = 3  # in a panel
CURVE = 32  # pieces of a line that a log axis bends


@figure(
    "break_even",
    "Break-even lengths", "time",
    "Median time of a step with the line through it, an intercept and a slope for each token. A dot marks the length from which the flatter line is "
    "faster, the bar its 95 % interval (Fieller’s). At most three crossings a panel, the surest ones, at lengths that both caches "
    "were measured at; caches that no line describes, or that cross no other, are left out.",
)
def break_even(tables: Tables):
    rows = drawable(tables.cells.filter(pl.col("experiment").is_in(EXPERIMENTS)), "step_p50_us", "seq_len")
    drawn = [marks_of(panel[0], cells) for panel, cells in with_panel(rows).group_by("panel", maintain_order=True)]
    marks = pl.concat([panel for panel in drawn if panel.height] or [pl.DataFrame()])
    if marks.is_empty():
        raise NoData("no two caches, each of at least four lengths, surely cross at a length that was measured")
    style = tables.style.showing(marks["variant"])
    axis = log_axis(alt.Y, "us", f"{heading('step_p50_us')} [µs]", marks["us"])
    marks = marks.with_columns(style.short(), text("us", microseconds_text), labelled="fitted")
    marks = with_end_labels(marks, "tokens", "us", axis, panel_height(marks))
    base = alt.Chart().encode(length_axis("tokens", "context [tokens]", rows["seq_len"]), axis)
    line = base.transform_filter("datum.fitted").mark_line(strokeWidth=1.8).encode(style.colour(), style.dash(), opacity=in_focus())
    measured = base.transform_filter("datum.measured").mark_point(size=50, strokeWidth=1.8)
    measured = measured.encode(style.colour(), style.shape(), opacity=in_focus(), tooltip=tips(length=False, tokens="tokens", p50="us_text"))
    names = alt.Chart().transform_filter("datum.fitted").encode(alt.X("tokens:Q"), alt.Y("label_at:Q"), style.colour(), text="label:N", opacity=in_focus())
    names = names.mark_text(align="left", dx=9, fontSize=11, cursor="pointer").properties(name="names")
    cross = base.transform_filter("datum.crosses").encode(tooltip=tips(length=False, slower_before="before", from_tokens="said"))
    bar = cross.encode(alt.X("low:Q"), alt.X2("high:Q")).mark_rule(strokeWidth=3, color=INK, opacity=0.55, clip=True)
    dot = cross.mark_point(size=70, filled=True, color=INK, opacity=1)
    said = cross.encode(text="said:N").mark_text(align="left", dx=7, dy=15, fontSize=11, fontWeight=600, color=INK)
    chart = alt.layer(line.add_params(click_focus()), measured, names, bar, dot, said)
    return titled(panels(chart, marks), surest(marks))


def marks_of(panel: str, cells: pl.DataFrame) -> pl.DataFrame:
    """The points, lines and crossings of a panel; empty where none cross."""
    points = {variant[0]: own.select("seq_len", "step_p50_us").rows() for variant, own in cells.group_by("variant", maintain_order=True)}
    lines = {variant: line for variant, own in points.items() if (line := trusted_line(own))}
    found = sorted(crossings(lines, points), key=lambda pair: pair[2].high / pair[2].low)[:MOST_MARKED]
    none = {"panel": panel, "before": "", "low": None, "high": None, "said": "", "measured": False, "fitted": False, "crosses": False}
    marks = []
    for variant in dict.fromkeys(name for after, before, _ in found for name in (after, before)):
        own, line = points[variant], lines[variant]
        first, last = min(own)[0], max(own)[0]
        curve = [first * (last / first) ** (at / CURVE) for at in range(CURVE + 1)]
        marks += [none | {"variant": variant, "tokens": x, "us": y, "measured": True} for x, y in own]
        marks += [none | {"variant": variant, "tokens": x, "us": line.at(x), "fitted": True} for x in curve]
    for after, before, at in found:
        said = f"{in_digits(at.at)} tokens ({in_digits(at.low)}–{in_digits(at.high)})"
        marks.append(none | {"variant": after, "before": before, "tokens": at.at, "us": lines[after].at(at.at), "low": at.low, "high": at.high,
                             "said": said, "crosses": True})  # fmt: skip
    return pl.DataFrame(marks, schema_overrides={"low": pl.Float64, "high": pl.Float64}, infer_schema_length=None)


def crossings(lines: dict[str, Line], points: dict[str, list]) -> list[tuple[str, str, Crossing]]:
    """(the faster one behind it, the other, where) of each pair that crosses at a length of both."""
    found = []
    for one, other in combinations(lines, 2):
        at = crossing(lines[one], lines[other])
        (first, last), (other_first, other_last) = ((min(points[name])[0], max(points[name])[0]) for name in (one, other))
        if at and max(first, other_first) <= at.at <= min(last, other_last):
            after, before = (one, other) if lines[one].slope < lines[other].slope else (other, one)
            found.append((after, before, at))
    return found


def surest(marks: pl.DataFrame) -> str:
    """Of the first panel."""
    panel = marks.filter(pl.col("panel") == marks["panel"][0])
    first = panel.filter("crosses").row(0, named=True)
    return f"{place(panel)}{label_of(first['variant'])} is faster than {label_of(first['before'])} from about {first['said'].replace(' tokens', ' tokens on')}"


def in_digits(tokens: float) -> str:
    """To three: no length is known better."""
    unit = 10.0 ** max(0, math.floor(math.log10(tokens)) - 2)
    return f"{round(tokens / unit) * unit:,.0f}"
