"""The checkpoint experiment: times of save, load, snapshot, restore and fork."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from marks import in_focus, legend_focus, text, tips, variant_axis
from messages import titled
from prepare import drawable, with_panel
from style import HUES, LENGTH_LABEL, QUIET, bytes_text, log_axis, microseconds_text, shades

OPERATIONS = {
    "save": ("save_p50_us", "saved_bytes"),
    "load": ("load_p50_us", "saved_bytes"),
    "snapshot": ("freeze_p50_us", "saved_bytes"),
    "restore": ("unfreeze_p50_us", "saved_bytes"),
    "fork": ("fork_p50_us", "fork_bytes"),
}


@figure(
    "checkpoint",
    "Save, snapshot and fork a sequence", "serving",
    "Further left is better; each point is a length. Save and load go through a file: a save includes the sync to disk, a "
    "load reads from the page cache. Snapshot and restore stay in memory. Points far apart show time spent on copying; "
    "points in one place show a cache of bounded size, or shared blocks.",
)
def checkpoint(tables: Tables):
    rows = with_panel(drawable(tables.cells, "fork_p50_us", "seq_len"))
    several = rows["panel"].n_unique() > 1
    long = pl.concat(
        rows.select(
            "variant", "seq_len", operation=pl.lit(operation), time=pl.col(time), bytes=pl.col(size),
            panel=pl.concat_str(pl.lit(operation), "panel", separator=" · ") if several else pl.lit(operation),
        )
        for operation, (time, size) in OPERATIONS.items()
    )  # fmt: skip
    long = long.with_columns(text("time", microseconds_text), text("bytes", bytes_text))
    message = forks(long)
    lengths = sorted(set(long["seq_len"]))
    order = long.filter(pl.col("operation") == "fork").group_by("variant").agg(pl.col("time").max()).sort("time", "variant")
    base = alt.Chart().encode(
        log_axis(alt.X, "time", "time of one sequence, p50 [µs]", long["time"]),
        variant_axis(order["variant"].to_list()),
        tooltip=tips(operation="operation", p50="time_text", bytes="bytes_text"),
    )
    shades = alt.Scale(domain=lengths, range=shades_of_blue(len(lengths)))
    legend = alt.Legend(title="sequence length [tokens]", orient="top", labelExpr=LENGTH_LABEL)
    points = base.mark_point(size=60, filled=True, opacity=1).encode(
        alt.Color("seq_len:O", scale=shades, legend=legend), opacity=in_focus()
    )
    line = base.mark_line(strokeWidth=1.5, color=QUIET).encode(detail="variant:N", order="seq_len:Q")
    chart = alt.layer(line, points.add_params(legend_focus("seq_len"))).properties(
        width=165, height=max(90, 18 * long["variant"].n_unique())
    )
    titles = list(dict.fromkeys(long["panel"]))
    drawn = chart.facet(alt.Facet("panel:N", sort=titles, title=None), data=long, columns=len(OPERATIONS))
    return titled(drawn, message)


def shades_of_blue(count: int) -> list[str]:
    return shades(HUES[0], count)[::-1]  # longer is darker


def forks(long: pl.DataFrame) -> str:
    forked = long.filter(pl.col("operation") == "fork", pl.col("seq_len") == pl.col("seq_len").max()).sort("time")
    first, last = forked.row(0, named=True), forked.row(-1, named=True)
    return (
        f"A fork of {first['seq_len']:,.0f} tokens takes from {first['time_text']} ({label_of(first['variant'])}) to "
        f"{last['time_text']} ({label_of(last['variant'])})"
    )
