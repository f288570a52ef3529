"""Time of a decode step against length."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import in_focus, interval, line_and_points, panels, text, tips
from prepare import drawable, stepped, with_panel
from style import QUIET, length_axis, log_axis, microseconds_text


@figure(
    "latency",
    "Step latency against sequence length",
    "Lower is better. Median time of a step with its 95 % interval; where intervals overlap, "
    "this run does not show which variant is faster. A ring marks times that something else on the machine disturbed.",
)
def latency(tables: Tables):
    rows = drawable(stepped(tables.cells), "step_p50_us", "seq_len")
    rows = with_panel(rows).with_columns(
        text("step_p50_us", microseconds_text),
        text("step_p99_us", microseconds_text),
        interval("step_ci_low_us", "step_ci_high_us", microseconds_text),
        pl.col("verdict").fill_null("–"),
        noise=pl.col("noise").fill_null("") if "noise" in rows.columns else pl.lit(""),
    )
    extremes = pl.concat([rows["step_p50_us"], rows["step_ci_low_us"], rows["step_ci_high_us"]]).drop_nulls()
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        log_axis(alt.Y, "step_p50_us", "time of one step, p50 [µs]", extremes),
        tooltip=tips(
            p50="step_p50_us_text", interval_95="interval", p99="step_p99_us_text", verdict="verdict", noise="noise"
        ),
    )
    ends = base.encode(alt.Y("step_ci_low_us:Q"), alt.Y2("step_ci_high_us:Q"))
    band = ends.mark_area().encode(style.fill(), opacity=in_focus(0.16, 0.02))
    bar = ends.mark_rule(strokeWidth=1.5).encode(style.colour(), opacity=in_focus())
    # Their times were disturbed: by what is in the tooltip.
    ring = base.mark_point(size=160, filled=False, strokeWidth=1.2, color=QUIET).transform_filter("datum.noise != ''")
    rings = [ring.encode(opacity=in_focus())] if (rows["noise"] != "").any() else []
    return panels(alt.layer(band, bar, *line_and_points(base, style), *rings), rows)
