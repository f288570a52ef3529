"""Memory: the peak against length, and bytes by kind."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import in_families, in_focus, legend_focus, length_choice, line_and_points, panels, scale, text, tips
from messages import at_each_length, times, titled
from families import short
from prepare import drawable, with_panel
from style import KINDS, QUIET, binary_unit, bytes_axis, bytes_text, length_axis

COLUMNS = ("bytes_payload", "bytes_metadata", "bytes_workspace_peak", "bytes_slack")  # in the order of KINDS
# What memory does not depend on: a panel for each of these only where the bytes differ after all.
SAME_OVER = ("workload", "experiment", "phase", "threads")


@figure(
    "memory",
    "Memory against sequence length",
    "Lower is better. Everything that the cache held at its peak: payload, metadata, slack and workspace. "
    "Parallel lines differ by a constant factor; a flat line is a cache of bounded size, which evicts tokens.",
)
def memory(tables: Tables):
    rows = drawable(tables.common, "bytes_peak", "seq_len")
    rows = with_panel(rows, SAME_OVER, COLUMNS).with_columns(
        text("bytes_peak", bytes_text),
        text("bytes_predicted", bytes_text),
        text("memory_vs_f32", "{:.3f}×".format),
    )
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max())
    message = f"{least(longest, tables.style.baseline)} at {longest['seq_len'][0]:,.0f} tokens"
    style = tables.style.showing(rows["variant"])
    axis = bytes_axis("bytes_peak", "peak memory, all layers", rows["bytes_peak"])
    rows = in_families(rows, style, "seq_len", "bytes_peak", axis)
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        axis,
        tooltip=tips(
            memory="bytes_peak_text", predicted="bytes_predicted_text", versus_f32="memory_vs_f32_text"
        ),
    )
    return titled(panels(alt.layer(*line_and_points(base, style, "seq_len")), rows), message)


def least(rows: pl.DataFrame, baseline: str | None) -> str:
    """Which of the rows, all of one length, holds the fewest bytes, and how few."""
    smallest = rows.sort("bytes_peak").row(0, named=True)
    same = rows.filter(pl.col("variant") == (baseline or ""), pl.col("panel") == smallest["panel"])
    said = f"{short(smallest['variant'])} holds the least, {bytes_text(smallest['bytes_peak'])}"
    if same.is_empty():
        return said
    if smallest["bytes_peak"] > 0.995 * same["bytes_peak"][0]:
        return f"No variant holds less than {short(baseline)}, {bytes_text(same['bytes_peak'][0])},"
    return f"{said} or {times(smallest['bytes_peak'] / same['bytes_peak'][0])} what {short(baseline)} holds,"


@figure(
    "bytes",
    "Bytes by kind",
    "Shorter is better. Payload is encoded K and V; metadata is scales, zero points, tables and scores; slack is "
    "reserved and unused; workspace is the scratch memory of a step.",
    at_one_length=True,
)
def bytes_by_kind(tables: Tables):
    rows = drawable(tables.common, "bytes_payload", "seq_len", "batch")
    rows = with_panel(rows, SAME_OVER, COLUMNS)
    unit, size = binary_unit(rows["bytes_per_token"].max())
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", "bytes_per_token", kind=pl.lit(kind), order=pl.lit(order),
            bytes=pl.col(column), per_token=pl.col(column) / (pl.col("batch") * pl.col("seq_len") * size),
        )
        for order, (kind, column) in enumerate(zip(KINDS, COLUMNS))
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text))
    choice = length_choice(rows["seq_len"])
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    bars = alt.Chart().mark_bar(stroke=QUIET, strokeWidth=0.5)
    chart = bars.encode(
        alt.Y("variant:N", sort=variants, axis=alt.Axis(title=None, labelFontSize=11)),
        alt.X(
            "sum(per_token):Q",
            axis=alt.Axis(title=f"bytes per cached token, all layers [{unit}]", tickCount=6),
        ),
        alt.Color("kind:N", scale=scale(KINDS), legend=alt.Legend(title="kind")),
        alt.Order("order:Q"),
        opacity=in_focus(),
        tooltip=tips(kind="kind", bytes="bytes_text"),
    )
    height = max(60, 22 * len(variants))
    message = at_each_length(rows, lambda at: least(at, tables.style.baseline))
    return titled(panels(chart.add_params(legend_focus("kind")), stacked, height=height, choice=choice), message)
