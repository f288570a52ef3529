"""Read bandwidth of attention over length, in % of what the machine reads at most."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from marks import family_lines, in_focus, text, tips
from messages import titled
from prepare import NoData, with_absent, with_panel
from style import INK, length_axis


@figure(
    "bandwidth",
    "% of measured read bandwidth", "time",
    "Higher is better. The dotted line is the read bandwidth measured in the same run with the same threads. In a cold "
    "cache, no K or V is in the last-level cache. More than 100 % is drawn at 100 % with its number: those reads came from "
    "a nearer cache than those of the measured bandwidth.",
)
def bandwidth(tables: Tables):
    rows = read_bandwidths(tables.common)
    style = tables.style.showing(rows["variant"])
    axis = alt.Y(
        "share_drawn:Q",
        axis=alt.Axis(title="% of measured read bandwidth", format="%"),
        scale=alt.Scale(domain=[0, 1.05], nice=False),
    )
    best = rows.filter(pl.col("seq_len") == pl.col("seq_len").max()).sort("share").row(-1, named=True)
    why = "from a nearer cache" if best["share"] > 1 else "the highest share"
    message = (f"{label_of(best['variant'])} reads at {best['share_text']} of the measured bandwidth, {why}, "
               f"in a {best['temperature']} at {best['seq_len']:,.0f} tokens")  # fmt: skip
    share = pl.col("share")
    largest = share == share.max().over("panel", "seq_len")
    rows = rows.with_columns(share_drawn=share.clip(upper_bound=1), above=(share > 1) & largest)
    tooltip = tips(cache="temperature", share="share_text", read="read_text", measured_read_bandwidth="ceiling_text")
    full = alt.Chart().mark_rule(color=INK, strokeDash=[2, 3]).encode(y=alt.datum(1))
    flags = alt.Chart().encode(alt.X("seq_len:Q"), alt.Y("share_drawn:Q"), text="share_text:N", opacity=in_focus())
    flags = flags.transform_filter("datum.above && !datum.reference")
    flags = flags.mark_text(align="right", dx=-8, dy=8, fontSize=10, color=INK)
    over = [full, *([flags] if rows["above"].any() else [])]
    x = length_axis("seq_len", "sequence length [tokens]", rows["seq_len"])
    return titled(family_lines(rows, style, x, axis, tooltip, over=lambda _: over), message)


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
            temperature=pl.lit(title),
            panel=pl.concat_str(pl.col("panel"), pl.lit((" · " if several else "") + title)),
        )
        for title, prefix in (("hot cache", ""), ("cold cache", "cold_"))
    ]
    rows = pl.concat(temperatures).filter(pl.col("share").is_not_null())
    gbps = "{:.3g} GB/s".format
    return rows.with_columns(text("share", "{:.1%}".format), text("read", gbps), text("ceiling", gbps))
