"""Error against memory, with the Pareto front."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from labels import with_point_labels
from marks import click_focus, front_line, in_focus, length_choice, panel_height, panel_width, panels, point_names, room_below, text, tips
from messages import at_each_length, titled
from prepare import drawable, layers_said, with_front, with_panel
from style import bytes_text, log_axis, microseconds_text


@figure(
    "pareto",
    "Error against memory", "error",
    "Towards the lower left is better; no variant measured has both fewer bytes and a smaller error than the dashed Pareto front. "
    "A darker fill is a slower step; outline and shape show the variant. A faint variant is dominated: another one is faster, by "
    "its interval, and neither larger nor less accurate. Errors below 1e-9 are drawn at 1e-9.",
    at_one_length=True,
)
def pareto(tables: Tables):
    rows = drawable(tables.common, "err_rel_l2", "bytes_per_token", "step_p50_us")
    rows = with_panel(rows).with_columns(
        per_token=pl.col("bytes_per_token") / 1024, error=pl.col("err_rel_l2").clip(lower_bound=1e-9)
    )
    rows = with_front(rows).with_columns(
        (pl.col("on_front") == "").alias("dominated"),
        text("bytes_per_token", bytes_text),
        text("step_p50_us", microseconds_text),
        text("err_rel_l2", "{:.3g}".format),
    )
    choice = length_choice(rows["seq_len"])
    style = tables.style.showing(rows["variant"])
    axes = (
        log_axis(alt.X, "per_token", f"bytes held per token, {layers_said(rows)} [KiB]", room_below(rows["per_token"])),
        log_axis(alt.Y, "error", "relative L2 error of the output", room_below(rows["error"]), "~e"),
    )
    size = panel_width(rows), panel_height(rows)
    rows = rows.with_columns(
        style.short(),
        first=2 * pl.col("front").cast(pl.Int64) + (pl.col("variant") == (style.baseline or "")),
        named=pl.col("front") | ~pl.col("dominated"),
    )
    rows = with_point_labels(rows, "per_token", "error", axes, size, "first")
    base = alt.Chart().encode(*axes)
    faint = alt.expr("datum.dominated ? 0.25 : 1")
    points = base.mark_point(strokeWidth=2.2, opacity=1, strokeOpacity=faint, fillOpacity=faint).encode(
        step_fill(rows["step_p50_us"]),
        style.stroke(),
        style.shape(),
        alt.Size("size:Q", scale=None),
        opacity=in_focus(),
        tooltip=tips(bytes_held="bytes_per_token_text", error="err_rel_l2_text", step="step_p50_us_text"),
    )
    layers = [front_line(base), points.add_params(click_focus()), point_names(base)]
    return titled(panels(alt.layer(*layers), rows, choice=choice), at_each_length(rows, count_of_dominated))


def count_of_dominated(rows: pl.DataFrame) -> str:
    total, front, dominated = rows.height, rows["front"].sum(), rows["dominated"].sum()
    counted = "variants" if rows["panel"].n_unique() == 1 else "points"
    return f"{front} of {total} {counted} {'is' if front == 1 else 'are'} on the front of memory and error, {dominated} {'is' if dominated == 1 else 'are'} dominated"


def step_fill(times: pl.Series) -> alt.Fill:
    fastest, slowest = times.min(), times.max()
    domain = [fastest, max(slowest, fastest * 1.01)]
    return alt.Fill(
        "step_p50_us:Q",
        scale=alt.Scale(type="log", scheme="viridis", reverse=True, domain=domain),
        legend=alt.Legend(title="step, p50 [µs]", format=",.3~r", gradientLength=130, tickCount=4),
    )
