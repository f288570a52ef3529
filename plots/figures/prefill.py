"""The prefill experiment: workspace and time of a whole prompt, by how attention over it is computed."""

from collections.abc import Callable

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import arm_of, heading, label_text
from marks import in_focus, interval, legend_focus, panels, scale, text, tips
from messages import place, times, titled
from prepare import of_experiment, panel_with, with_panel
from style import COLOURS, QUIET, SHAPES, bytes_axis, bytes_text, length_axis, log_axis, microseconds_text, natural_order


@figure(
    "prefill_workspace",
    "Prefill: workspace against prompt length", "memory",
    "Lower is better. Peak scratch memory while a prompt is stored and attended to. A line that rises four-fold per "
    "doubling holds the whole score matrix; two-fold, that of a chunk; a flat one holds neither. The tiled line of a "
    "paged cache rises by its block table alone.",
)
def prefill_workspace(tables: Tables):
    rows = prefill_arms(tables.cells, "bytes_workspace_peak").filter(pl.col("bytes_workspace_peak") > 0)
    rows = rows.with_columns(text("bytes_workspace_peak", bytes_text))
    base = alt.Chart().encode(
        length_axis("seq_len", "prompt length [tokens]", rows["seq_len"]),
        bytes_axis("bytes_workspace_peak", "peak workspace", rows["bytes_workspace_peak"]),
        tooltip=tips(method="arm_text", workspace="bytes_workspace_peak_text"),
    )
    return titled(panels(alt.layer(*arm_lines(base, rows)), rows), most_and_least(rows, "bytes_workspace_peak", bytes_text, "needs", "much"))


@figure(
    "prefill_time",
    "Prefill: time against prompt length", "time",
    "Lower is better. Median time of a whole prompt, storing included, with its 95 % interval.",
)
def prefill_time(tables: Tables):
    rows = prefill_arms(tables.cells, "prefill_p50_us").with_columns(
        text("prefill_p50_us", microseconds_text),
        interval("prefill_ci_low_us", "prefill_ci_high_us", microseconds_text),
    )
    ends = pl.concat([rows[end] for end in ("prefill_p50_us", "prefill_ci_low_us", "prefill_ci_high_us")])
    base = alt.Chart().encode(
        length_axis("seq_len", "prompt length [tokens]", rows["seq_len"]),
        log_axis(alt.Y, "prefill_p50_us", f"{heading('prefill_p50_us')} [µs]", ends.drop_nulls()),
        tooltip=tips(method="arm_text", p50="prefill_p50_us_text", interval_95="interval"),
    )
    bar = base.encode(alt.Y("prefill_ci_low_us:Q"), alt.Y2("prefill_ci_high_us:Q")).mark_rule(
        strokeWidth=1.5, color=QUIET
    )
    drawn = panels(alt.layer(bar.encode(opacity=in_focus()), *arm_lines(base, rows)), rows)
    return titled(drawn, most_and_least(rows, "prefill_p50_us", microseconds_text, "takes", "long"))


def most_and_least(rows: pl.DataFrame, value: str, write: Callable[[float], str], verb: str, as_: str) -> str | None:
    """The arms with the most and the least of `value` for the longest prompt that two arms of a variant were given."""
    together = ["panel", "variant", "seq_len"]
    rows = rows.filter(pl.len().over(together) > 1)
    if rows.is_empty():
        return None
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max()).row(0, named=True)
    rows = rows.filter(pl.col(name) == longest[name] for name in together).sort(value, "arm_text")
    most, least = rows.row(-1, named=True), rows.row(0, named=True)
    ratio = times(most[value] / least[value])
    return (f"{place(rows)}{most['arm_text']} {verb} {write(most[value])}, {ratio} as {as_} as {least['arm_text']} "
            f"({write(least[value])}), at {longest['seq_len']:,.0f} tokens")  # fmt: skip


def prefill_arms(cells: pl.DataFrame, column: str) -> pl.DataFrame:
    """The cells of the prefill experiment in panels, one a variant, a line an `arm_text`."""
    rows = of_experiment(cells, "prefill", column)
    rows = with_panel(rows)
    rows = rows.with_columns(arm_text=pl.Series(map(arm_of, rows.iter_rows(named=True)), dtype=pl.String))
    return rows.with_columns(panel=panel_with(label_text()) if rows["variant"].n_unique() > 1 else pl.col("panel"))


def arm_lines(base: alt.Chart, rows: pl.DataFrame) -> list[alt.Chart]:
    """The layers of a figure with a line an arm; `base` holds the axes and the tooltip."""
    arms = natural_order(set(rows["arm_text"]))
    colours = dict(zip(arms, COLOURS * (1 + len(arms) // len(COLOURS))))
    legend = alt.Legend(title="method", symbolDash=[1, 0], symbolFillColor="white", symbolStrokeWidth=2)
    colour = alt.Color("arm_text:N", scale=scale(colours), legend=legend)
    line = base.mark_line(strokeWidth=1.8).encode(colour, opacity=in_focus())
    shapes = alt.Scale(domain=arms, range=[SHAPES[i % len(SHAPES)] for i in range(len(arms))])
    points = base.mark_point(size=65, strokeWidth=1.8).encode(
        colour, alt.Shape("arm_text:N", scale=shapes, legend=legend), opacity=in_focus()
    )
    return [line.add_params(legend_focus("arm_text")), points]
