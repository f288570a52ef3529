"""Whole models: tokens per second against context with the roofline, and the parts of a step's time."""

import altair as alt
import polars as pl
from decision import rounded
from figures.figure import Tables, figure
from known import label_of
from marks import family_lines, in_focus, interval, interval_bars, length_choice, panels, stacked_bars, text, tips, variant_axis
from messages import answer, at_each_length, from_to, place, titled
from prepare import drawable, with_absent, with_panel
from style import INK, length_axis, log_axis, microseconds_text

# From dark to light, so that the parts keep their order in grey; the cache's are orange.
PARTS = {
    "projections": ("projections_p50_us", "#5b7ba6"),
    "linear states": ("state_p50_us", "#8fb0c9"),
    "the rest": ("rest_p50_us", "#c3cfdf"),
    "attention": ("attend_p50_us", "#d9935a"),
    "append and view": ("store_us", "#f3d9bf"),
}


@figure(
    "model_rate",
    "Tokens per second of a whole model against context", "model",
    "Higher is better. The rate of all sequences of a batch together, with the 95 % interval of the median step. The dotted line of "
    "its colour is the roofline: reading the weights and the cache once at the measured bandwidth, or their multiply-adds, whichever "
    "takes longer. Where a line bends down, the cache begins to cost more than the weights.",
)
def model_rate(tables: Tables):
    rows = drawable(tables.cells, "tokens_per_s", "step_bound_us", "seq_len")
    rows = with_panel(rows).with_columns(
        text("tokens_per_s", "{:.4g}".format),
        text("step_p50_us", microseconds_text),
        text("step_bound_share", "{:.0%}".format),
        text("cache_share", "{:.0%}".format),
        interval("tokens_per_s_ci_low", "tokens_per_s_ci_high", "{:.4g}".format),
        roofline=pl.col("batch") / pl.col("step_bound_us") * 1e6,
    )
    ends = pl.concat([rows["tokens_per_s_ci_low"], rows["roofline"]]).drop_nulls()
    message = longest_message(rows)
    style = tables.style.showing(rows["variant"])
    axis = log_axis(alt.Y, "tokens_per_s", "tokens per second", ends)
    tooltip = tips(
        tokens_per_second="tokens_per_s_text", interval_95="interval", of_roofline="step_bound_share_text",
        step_p50="step_p50_us_text", share_of_the_cache="cache_share_text", weights="weights",
    )  # fmt: skip
    under = lambda own: [  # noqa: E731
        interval_bars(own, style, "tokens_per_s_ci_low", "tokens_per_s_ci_high"),
        own.encode(alt.Y("roofline:Q"), style.colour(), opacity=in_focus()).mark_line(strokeWidth=1.2, strokeDash=[1, 3]),
    ]
    return titled(family_lines(rows, style, length_axis("seq_len", "context [tokens]", rows["seq_len"]), axis, tooltip, under=under), message)


def longest_message(rows: pl.DataFrame) -> str:
    """Of the first panel, at its longest context."""
    panel = rows.filter(pl.col("panel") == rows["panel"][0])
    longest = panel.filter(pl.col("seq_len") == pl.col("seq_len").max())
    compared, base = answer(longest), longest.filter(pl.col("verdict") == "baseline")
    of = (base if base.height else longest).row(0, named=True)
    said = f"{compared}; " if compared and base.height else ""
    rate = f"decodes {rounded(of['tokens_per_s'])} tokens per second at a context of {of['seq_len']:,.0f} tokens"
    return f"{place(longest)}{said}{label_of(of['variant'])} {rate}"


@figure(
    "model_split",
    "Time of a whole model's step, by part", "model",
    "Shorter is better. Blue is the model's part of a step: products with weights, linear layers' states and the rest. Orange is the cache's. "
    "The parts are medians, so their sum differs a little from the median step. The line in a bar is the step's roofline.",
    at_one_length=True,
)
def model_split(tables: Tables):
    rows = with_absent(drawable(tables.cells, "projections_p50_us", "step_p50_us", "seq_len"), ["state_p50_us"])
    rows = with_panel(rows).with_columns(store_us=pl.col("append_p50_us") + pl.col("view_p50_us"))
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", "cache_share", part=pl.lit(part), order=pl.lit(order),
            ms=pl.col(column) / 1000, us=pl.col(column), bound_ms=pl.col("step_bound_us") / 1000,
        )
        for order, (part, (column, _)) in enumerate(PARTS.items())
    ).drop_nulls("us")  # fmt: skip
    stacked = stacked.with_columns(text("us", microseconds_text), text("cache_share", "{:.0%}".format))
    choice = length_choice(rows["seq_len"])
    message = at_each_length(rows, cache_takes)
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    found = set(stacked["part"])
    colours = {part: colour for part, (_, colour) in PARTS.items() if part in found}
    base = alt.Chart().encode(variant_axis(variants), tooltip=tips(part="part", time="us_text", share_of_the_cache="cache_share_text"))
    bars = stacked_bars(base, alt.X("ms:Q", axis=alt.Axis(title="time of a step [ms]", tickCount=6)), "part", colours, "part of a step")
    roofline = base.mark_tick(color=INK, thickness=2, height=18).encode(alt.X("bound_ms:Q"))
    return titled(panels(alt.layer(bars, roofline), stacked, height=max(60, 24 * len(variants)), choice=choice), message)


def cache_takes(rows: pl.DataFrame) -> str:
    """The cache's share of a step, from the least to the most, of the rows of one length."""
    shares = rows.drop_nulls("cache_share").sort("cache_share")
    return f"The cache takes {from_to(shares.row(0, named=True), shares.row(-1, named=True), 'cache_share')} of a step"
