"""Read bandwidth of attention over length, in % of what the machine reads at most."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import line_and_points, panels, text, tips
from prepare import NoData, with_absent, with_panel
from style import INK, length_axis


@figure(
    "bandwidth",
    "% of measured read bandwidth",
    "Higher is better. The dotted line is the read bandwidth measured in the same run with the same threads; in a cold "
    "cache, no row is in the last-level cache.",
)
def bandwidth(tables: Tables):
    rows = read_bandwidths(tables.cells)
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        alt.Y(
            "share:Q",
            axis=alt.Axis(title="% of measured read bandwidth", format="%"),
            scale=alt.Scale(domain=[0, max(1.05, 1.05 * rows["share"].max())], nice=False),
        ),
        tooltip=tips(share="share_text", read="read_text", measured_read_bandwidth="ceiling_text"),
    )
    full = alt.Chart().mark_rule(color=INK, strokeDash=[2, 3]).encode(y=alt.datum(1))
    return panels(alt.layer(*line_and_points(base, style), full), rows)


def read_bandwidths(cells: pl.DataFrame) -> pl.DataFrame:
    """A row a cell and temperature in panels; adds `share`, `read` and `ceiling`, and how they read in a tooltip."""
    hot_or_cold = pl.any_horizontal(pl.col("ceiling_share", "cold_ceiling_share").is_not_null())
    rows = with_absent(cells, ["ceiling_share", "cold_ceiling_share"]).filter(hot_or_cold & (pl.col("seq_len") > 0))
    if rows.is_empty():
        raise NoData("no cell has ceiling_share or cold_ceiling_share")
    names = {"share": "ceiling_share", "read": "read_gbps", "ceiling": "ceiling_gbps"}
    rows = with_panel(rows)
    several = rows["panel"].n_unique() > 1
    temperatures = [
        rows.with_columns(
            *(pl.col(prefix + column).alias(name) for name, column in names.items()),
            panel=pl.concat_str(pl.col("panel"), pl.lit((" · " if several else "") + title)),
        )
        for title, prefix in (("hot cache", ""), ("cold cache", "cold_"))
    ]
    rows = pl.concat(temperatures).filter(pl.col("share").is_not_null())
    gbps = "{:.3g} GB/s".format
    return rows.with_columns(text("share", "{:.1%}".format), text("read", gbps), text("ceiling", gbps))
