"""Other engines' attention compared with kvlab's over the same bits."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of
from marks import in_focus, legend_focus, length_choice, panels, tips, variant_axis
from messages import at_each_length, times, titled
from prepare import NoData, measured, with_absent, with_panel
from style import INK, log_axis, microseconds_text

# The cache's state before a step, and the columns that have its ratio and time.
STATES = {"cold": ("peer_cold_ratio", "cold_attend_p50_us", "#0072B2"), "hot": ("peer_ratio", "step_p50_us", "#D55E00")}


@figure(
    "peers",
    "Other engines' step time relative to kvlab's", "time",
    "Further right is slower than kvlab; the line at 1 is kvlab's own variant of the same bits, which the tooltip names. Bars are "
    "95 % intervals of the ratio. Cold: no K or V is in the last-level cache when the step begins. Hot: the same cache is read "
    "again and again.",
    at_one_length=True,
)
def peers(tables: Tables):
    numbers = [f"{ratio}_{end}" for ratio, _, _ in STATES.values() for end in ("p50", "ci_low", "ci_high")]
    cells = with_absent(measured(tables.cells), [*numbers, "cold_attend_p50_us"], ["peer_versus", "peer_settings", "peer_version"])
    timed = [pl.col(f"{ratio}_p50") > 0 for ratio, _, _ in STATES.values()]
    cells = cells.filter(pl.col("peer_versus").is_not_null(), pl.any_horizontal(timed))
    if cells.is_empty():
        raise NoData("no other engine was timed (sweep.peers)")
    cells = with_panel(cells)
    rows = pl.concat(of_state(cells, state) for state in STATES).filter(pl.col("ratio") > 0)
    choice = length_choice(rows["seq_len"])
    ends = pl.concat([rows["ratio"], rows["low"], rows["high"], pl.Series([1.0])]).drop_nulls()
    ends = ends.clip(min(1.0, rows["ratio"].min()) / 2, rows["ratio"].max() * 2)
    axis = log_axis(alt.X, "ratio", "step time / kvlab's with the same bits", ends)
    order = rows.group_by("variant").agg(pl.col("ratio").mean()).sort("ratio", "variant")["variant"].to_list()
    colours = alt.Scale(domain=list(STATES), range=[colour for _, _, colour in STATES.values()])
    base = alt.Chart().encode(
        axis,
        variant_axis(order),
        alt.Color("state:N", scale=colours, legend=alt.Legend(title="the cache is", orient="top")),
        opacity=in_focus(),
        tooltip=tips(ratio="ratio_text", interval_95="interval", versus="peer_versus", step="us_text", version="peer_version",
                     settings="peer_settings"),
    )  # fmt: skip
    layers = []
    for shown, pixels in (("datum.cold", -4), ("!datum.cold", 4)):  # side by side: their intervals overlap
        own = base.transform_filter(shown)
        layers.append(own.encode(alt.X("low:Q"), alt.X2("high:Q")).mark_rule(strokeWidth=2, clip=True, yOffset=pixels))
        layers.append(own.mark_point(size=45, filled=True, opacity=1, yOffset=pixels))
    one = alt.Chart().mark_rule(color=INK).encode(x=alt.datum(1))
    chart = alt.layer(layers[0].add_params(legend_focus("state")), one, *layers[1:])
    drawn = panels(chart, rows, max(90, 24 * rows["variant"].n_unique()), choice, apart="y")
    return titled(drawn, at_each_length(rows, nearest))


def of_state(cells: pl.DataFrame, state: str) -> pl.DataFrame:
    ratio, time, _ = STATES[state]
    ends = {"ratio": f"{ratio}_p50", "low": f"{ratio}_ci_low", "high": f"{ratio}_ci_high", "us": time}
    rows = cells.select("panel", "variant", "seq_len", "peer_versus", "peer_settings", "peer_version",
                        **{name: pl.col(column) for name, column in ends.items()}, state=pl.lit(state), cold=pl.lit(state == "cold"))  # fmt: skip
    return rows.with_columns(
        ratio_text=pl.col("ratio").map_elements("{:.3g}×".format, return_dtype=pl.String),
        interval=pl.format("{} – {}", pl.col("low").round_sig_figs(3), pl.col("high").round_sig_figs(3)),
        us_text=pl.col("us").map_elements(microseconds_text, return_dtype=pl.String),
    )


def nearest(rows: pl.DataFrame) -> str:
    """Of the engines the one that comes nearest to kvlab, or is ahead of it."""
    row = rows.sort("ratio").row(0, named=True)
    faster = rows.filter(pl.col("high") < 1)["variant"].n_unique()
    panel = f"{row['panel']}: " if rows["panel"].n_unique() > 1 else ""
    said = f"{panel}{label_of(row['variant'])} ({row['state']}) takes {times(row['ratio'])} as long as {label_of(row['peer_versus'])}"
    return f"{said}, the least of {rows['variant'].n_unique()}; {faster or 'none'} of them {'is' if faster < 2 else 'are'} faster by the interval,"
