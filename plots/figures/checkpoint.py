"""The checkpoint experiment: times of save, load, snapshot, restore and fork."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import in_focus, legend_focus, panels, text, tips
from prepare import drawable, with_panel
from style import COLOURS, SHAPES, bytes_text, length_axis, log_axis, microseconds_text

OPERATIONS = {
    "save": ("save_p50_us", "saved_bytes"),
    "load": ("load_p50_us", "saved_bytes"),
    "snapshot": ("freeze_p50_us", "saved_bytes"),
    "restore": ("unfreeze_p50_us", "saved_bytes"),
    "fork": ("fork_p50_us", "fork_bytes"),
}


@figure(
    "checkpoint",
    "Save, snapshot and fork a sequence",
    "Lower is better. Save and load go through a file: saving includes the sync to disk, loading reads from the page "
    "cache. Snapshot and restore stay in memory. Where time doubles with the length, it is spent copying; a flat line "
    "is a cache of bounded size, or a fork that shares its blocks.",
)
def checkpoint(tables: Tables):
    rows = with_panel(drawable(tables.cells, "fork_p50_us", "seq_len"))
    several = rows["panel"].n_unique() > 1
    title = pl.concat_str("variant", pl.lit(" · "), "panel") if several else pl.col("variant")
    long = pl.concat(
        rows.select(
            "variant", "seq_len", panel=title, operation=pl.lit(operation), time=pl.col(time), bytes=pl.col(size)
        )
        for operation, (time, size) in OPERATIONS.items()
    )
    long = long.with_columns(text("time", microseconds_text), text("bytes", bytes_text)).sort("panel", "seq_len")
    operations = list(OPERATIONS)
    colours = alt.Scale(domain=operations, range=COLOURS[: len(operations)])
    shapes = alt.Scale(domain=operations, range=SHAPES[: len(operations)])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", long["seq_len"]),
        log_axis(alt.Y, "time", "time of one sequence, p50 [µs]", long["time"]),
        alt.Color("operation:N", scale=colours, sort=operations),
        opacity=in_focus(),
        tooltip=tips(operation="operation", p50="time_text", bytes="bytes_text"),
    )
    points = base.mark_point(size=55, strokeWidth=1.8).encode(
        alt.Shape("operation:N", scale=shapes, sort=operations)
    )
    line = base.mark_line(strokeWidth=1.8).add_params(legend_focus("operation"))
    return panels(alt.layer(line, points), long)
