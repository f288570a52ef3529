"""Growth runs: from an empty cache one token at a time, every step and what appending has cost in all."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import doublings, in_focus, interval, legend_focus, line_and_points, panels, text, tips
from prepare import DIMENSIONS, NoData, with_panel
from style import length_axis, log_axis, microseconds_text

MAX_POINTS = 20_000  # what a browser still draws at once; the maxima always survive


@figure(
    "growth",
    "Every step of a growth run",
    "From an empty cache, one token at a time; every dot is a step. A spike is a step that reallocated the cache, "
    "or that the machine interrupted. Shapes only name the line. The longest run of each variant is drawn.",
)
def growth(tables: Tables):
    rows = longest_growth(tables.growth, tables.cells)
    # Lengths 3, 6, 12, … for the shapes: away from the powers of two, where doubling caches have their spikes.
    away_from_spikes = at_lengths(3 << power for power in range(40))
    markers = rows.filter((pl.col("repetition") == pl.col("repetition").min()) & away_from_spikes)
    thinned = thin(rows, MAX_POINTS)
    rows = pl.concat([thinned.with_columns(mark=False), markers.with_columns(mark=True)])
    rows = rows.with_columns(text("step_us", microseconds_text)).select(
        "variant", "panel", "repetition", "length", "step_us", "mark", "step_us_text"
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("length", "cache length after the step [tokens]", doublings(rows["length"])),
        log_axis(alt.Y, "step_us", "time of one step [µs]", rows["step_us"]),
        style.colour(),
        tooltip=tips(length=False, tokens="length", repetition="repetition", step="step_us_text"),
    )
    steps = base.transform_filter("!datum.mark")
    line = steps.mark_line(strokeWidth=0.8).encode(detail="repetition:N", opacity=in_focus(0.55, 0.03))
    dots = steps.mark_circle(size=7).encode(opacity=in_focus(0.75, 0.02)).add_params(legend_focus())
    shapes = base.transform_filter("datum.mark").mark_point(
        size=70, filled=True, stroke="white", strokeWidth=0.8
    )
    return panels(alt.layer(line, dots, shapes.encode(style.shape(), opacity=in_focus())), rows)


@figure(
    "growth_total",
    "Total time of appends in a growth run",
    "Lower is better. Time spent on append and view, without attention, until the cache had this length; "
    "median of the repetitions. Twice the time for twice the length is linear, four times is quadratic.",
)
def growth_total(tables: Tables):
    rows = growth_totals(longest_growth(tables.growth, tables.cells)).with_columns(
        text("total_us", microseconds_text), interval("low_us", "high_us", microseconds_text)
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("length", "cache length [tokens]", rows["length"]),
        log_axis(alt.Y, "total_us", "append and view, summed [µs]", rows["total_us"]),
        tooltip=tips(length=False, tokens="length", summed="total_us_text", repetitions="interval"),
    )
    return panels(alt.layer(*line_and_points(base, style)), rows)


def longest_growth(growth: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The steps of the longest run of each variant (shorter ones are its beginnings), in panels; adds `length`, the
    rows in the cache after the step."""
    if growth.is_empty():
        raise NoData("no growth experiment was run")
    # `variant` comes with the cell, so that the steps of an A/A test, whose cell is not drawn, drop out with it.
    rows = growth.filter(pl.col("step_us") > 0).drop("variant").join(cells, on=["run", "cell"])
    if rows.is_empty():
        raise NoData("growth.csv has no steps of a finished cell")
    dimensions = [name for name in DIMENSIONS if name in rows.columns]
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max().over("variant", *dimensions))
    first = min(longest["token"].min(), 1)  # whether the file counts tokens from 0 or from 1
    rows = with_panel(longest).with_columns(length=pl.col("token") - first + 1)
    return rows.sort("length", maintain_order=True)  # within a length the panels keep their order


def growth_totals(steps: pl.DataFrame) -> pl.DataFrame:
    """What a run has spent on append and view, without attention, when it reaches 1, 2, 4, … rows: `total_us`,
    the median of the repetitions, between `low_us` and `high_us`."""
    step = pl.col("append_us") + pl.col("view_us").fill_null(0)
    spent = step.cum_sum().over("panel", "variant", "repetition")
    reached = steps.with_columns(spent=spent).filter(at_lengths(1 << power for power in range(40)))
    totals = reached.group_by("panel", "variant", "length", maintain_order=True).agg(
        total_us=pl.col("spent").median(), low_us=pl.col("spent").min(), high_us=pl.col("spent").max()
    )
    if totals.filter(pl.col("total_us") > 0).is_empty():
        raise NoData("growth.csv has no append_us")
    return totals.filter(pl.col("total_us") > 0)


def thin(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most `most` steps: the slowest and the fastest of each stretch of a log axis, so that no spike is lost."""
    if rows.height <= most:
        return rows
    line = ["panel", "variant", "repetition"]
    stretches = most / (2 * rows.n_unique(line))  # a line
    length = pl.col("length").log(2)
    keys = [*line, (length / length.max() * stretches).floor()]
    extremes = (pl.col("step_us").arg_max(), pl.col("step_us").arg_min())
    return rows.filter(pl.any_horizontal((pl.int_range(pl.len()) == end).over(keys) for end in extremes))


def at_lengths(lengths) -> pl.Expr:
    return pl.col("length").is_in(pl.Series(lengths, dtype=pl.Float64).implode())
