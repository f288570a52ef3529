"""Error against memory, with the Pareto front."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import in_focus, legend_focus, length_choice, panels, room_below, text, tips
from prepare import drawable, stepped, with_front, with_panel
from style import INK, QUIET, bytes_text, log_axis, microseconds_text

MOST_LABELLED = 8  # variants whose names still fit beside their points


@figure(
    "pareto",
    "Error against memory",
    "Towards the lower left is better; the dashed line is the Pareto front: no variant measured has both less memory "
    "and a smaller error. Fill shows the time of a step (darker is slower), outline and shape the variant. "
    "Errors below 1e-9 are drawn at 1e-9.",
    at_one_length=True,
)
def pareto(tables: Tables):
    rows = drawable(stepped(tables.cells), "err_rel_l2", "bytes_per_token", "step_p50_us")
    rows = with_panel(rows).with_columns(
        per_token=pl.col("bytes_per_token") / 1024, error=pl.col("err_rel_l2").clip(lower_bound=1e-9)
    )
    rows = with_front(rows).with_columns(
        text("bytes_per_token", bytes_text),
        text("step_p50_us", microseconds_text),
        text("err_rel_l2", "{:.3g}".format),
    )
    choice = length_choice(rows["seq_len"])
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        log_axis(
            alt.X, "per_token", "memory per cached token, all layers [KiB]", room_below(rows["per_token"])
        ),
        log_axis(alt.Y, "error", "relative L2 error of the output", room_below(rows["error"]), "~e"),
    )
    on_front = base.transform_filter("datum.front")
    line = on_front.mark_line(interpolate="step-after", color=QUIET, strokeDash=[4, 3], strokeWidth=1.3)
    points = base.mark_point(strokeWidth=2.2, opacity=1).encode(
        step_fill(rows["step_p50_us"]),
        style.stroke(),
        style.shape(),
        alt.Size("size:Q", scale=None),
        opacity=in_focus(),
        tooltip=tips(memory="bytes_per_token_text", error="err_rel_l2_text", step="step_p50_us_text"),
    )
    layers = [line.encode(order="per_token:Q"), points.add_params(legend_focus())]
    if len(style.shown) <= MOST_LABELLED and rows["panel"].n_unique() == 1:
        # Below and left of the front there are no points to collide with.
        label = on_front.mark_text(align="right", baseline="top", dx=-13, dy=5, fontSize=11, color=INK)
        layers.append(label.encode(text="front_label:N"))
    return panels(alt.layer(*layers), rows, choice=choice)


def step_fill(times: pl.Series) -> alt.Fill:
    fastest, slowest = times.min(), times.max()
    domain = [fastest, max(slowest, fastest * 1.01)]
    return alt.Fill(
        "step_p50_us:Q",
        scale=alt.Scale(type="log", scheme="viridis", reverse=True, domain=domain),
        legend=alt.Legend(title="step, p50 [µs]", format=",.3~r", gradientLength=130, tickCount=4),
    )
