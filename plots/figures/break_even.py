"""The lengths from which one cache's steps are faster than another's."""

import math

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from labels import with_end_labels
from known import heading
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
    "Points are median times of a step, with a line fitted per cache. A dot marks the length from which the flatter line is faster, "
    "its bar the 95 % interval (Fieller’s). A panel shows at most its three surest crossings within the lengths measured for both. "
    "Caches that no line fits, or that cross no other, are left out.",
)
def break_even(tables: Tables):
    rows = drawable(tables.cells.filter(pl.col("experiment").is_in(EXPERIMENTS)), "step_p50_us", "seq_len")
    drawn = [marks_of(panel[0], cells, tables) for panel, cells in with_panel(rows).group_by("panel", maintain_order=True)]
    marks = pl.concat([panel for panel in drawn if panel.height] or [pl.DataFrame()])
    if marks.is_empty():
        raise NoData("no two caches with at least four lengths each surely cross within the lengths measured")
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


def marks_of(panel: str, cells: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """The points, lines and crossings of a panel; empty where none cross."""
    points = {variant[0]: own.select("seq_len", "step_p50_us").rows() for variant, own in cells.group_by("variant", maintain_order=True)}
    groups = (group for group in tables.answers[cells["run"][0]]["break_even"] if group["cell"] in cells["cell"])
    found = next(groups, {"crossings": []})["crossings"][:MOST_MARKED]
    none = {"panel": panel, "before": "", "low": None, "high": None, "said": "", "measured": False, "fitted": False, "crosses": False}
    marks = []
    for variant, line in {pair[end]["variant"]: pair[end] for pair in found for end in ("after", "before")}.items():
        own = points[variant]
        first, last = min(own)[0], max(own)[0]
        curve = [first * (last / first) ** (at / CURVE) for at in range(CURVE + 1)]
        marks += [none | {"variant": variant, "tokens": x, "us": y, "measured": True} for x, y in own]
        marks += [none | {"variant": variant, "tokens": x, "us": at(line, x), "fitted": True} for x in curve]
    for pair in found:
        low, high = pair["interval"]
        said = f"{in_digits(pair['tokens'])} tokens ({in_digits(low)}–{in_digits(high)})"
        marks.append(none | {"variant": pair["after"]["variant"], "before": pair["before"]["variant"], "tokens": pair["tokens"],
                             "us": at(pair["after"], pair["tokens"]), "low": low, "high": high, "said": said, "crosses": True})  # fmt: skip
    return pl.DataFrame(marks, schema_overrides={"low": pl.Float64, "high": pl.Float64}, infer_schema_length=None)


def at(line: dict, tokens: float) -> float:
    return line["intercept_us"] + line["us_per_token"] * tokens


def surest(marks: pl.DataFrame) -> str:
    """Of the first panel."""
    panel = marks.filter(pl.col("panel") == marks["panel"][0])
    first = panel.filter("crosses").row(0, named=True)
    return f"{place(panel)}{label_of(first['variant'])} is faster than {label_of(first['before'])} from about {first['said'].replace(' tokens', ' tokens on')}"


def in_digits(tokens: float) -> str:
    """To three: no length is known better."""
    unit = 10.0 ** max(0, math.floor(math.log10(tokens)) - 2)
    return f"{round(tokens / unit) * unit:,.0f}"
