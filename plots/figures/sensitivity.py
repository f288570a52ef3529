"""The sensitivity experiment: what a codec in one layer's K or V alone costs, and whether such costs add up."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.models import warning_if_tiny
from marks import in_focus, interval, legend_focus, panels, text, tips
from messages import titled
from prepare import NoData, of_experiment, panel_with, with_absent, with_panel
from style import COLOURS, QUIET, log_axis

KL = "KL(full f32 cache || variant), mean [nats]"


@figure(
    "sensitivity_layers",
    "KL divergence of a codec in one layer’s K or V alone", "quality",
    "Paler is better. Each cell is a codec in K or V of one layer, with everything else in f32. The colour is the KL divergence of the "
    "next token's distribution from the full f32 cache's on the same text, on a log scale. A dark row is a layer that needs more bits; "
    "a dark column is a codec that costs much in every layer.",
    warning=warning_if_tiny,
    own_style=True,
)
def sensitivity_layers(tables: Tables):
    rows = sensitivity_rows(tables).filter(pl.col("sensitive_layer").is_not_null(), pl.col("kl_mean") > 0)
    if rows.is_empty():
        raise NoData("no codec changes a prediction from one layer alone")
    rows = rows.with_columns(panel=panel_with(pl.col("sensitive_side"), last=True)).sort("panel", "sensitive_layer", maintain_order=True)
    order = rows.group_by("sensitive_format").agg(pl.col("kl_mean").mean()).sort("kl_mean", "sensitive_format")["sensitive_format"].to_list()
    colour = alt.Color(
        "kl_mean:Q",
        scale=alt.Scale(type="log", scheme="blues"),
        legend=alt.Legend(title=["KL", "[nats]"], format="~e", tickCount=4),
    )
    base = alt.Chart().encode(
        alt.X("sensitive_format:N", sort=order, title=None, axis=alt.Axis(labelAngle=-30, labelLimit=0)),
        alt.Y("sensitive_layer:O", title="layer", axis=alt.Axis(labelOverlap=True, format="d")),
        colour,
        tooltip=tips(layer="sensitive_layer", side="sensitive_side", format="sensitive_format", KL="kl_mean_text", interval_95="interval"),
    )
    height = min(max(16 * rows["sensitive_layer"].n_unique(), 90), 480)
    return titled(panels(base.mark_rect(stroke="white", strokeWidth=0.5), rows, height=height), most_and_least(rows))


def most_and_least(rows: pl.DataFrame) -> str:
    """The most and the least sensitive part in the codec that costs most where all have been measured."""
    worst = rows.group_by("sensitive_format").agg(pl.col("kl_mean").mean()).sort("kl_mean", "sensitive_format")["sensitive_format"][-1]
    named = rows.filter(pl.col("sensitive_format") == worst).sort("kl_mean", "sensitive_layer", "sensitive_side")
    least, most = (f"{row['sensitive_side']} of layer {row['sensitive_layer']:.0f} ({row['kl_mean']:.2g} nats)"
                   for row in (named.row(0, named=True), named.row(-1, named=True)))  # fmt: skip
    return f"With {worst}, {most} is the most sensitive part and {least} is the least sensitive"


@figure(
    "sensitivity_sum",
    "KL divergence measured against the sum over layers and sides", "quality",
    "On the line, effects add up; below it, codecs in several layers cost less together than the sum of what each costs alone. Each point is a "
    "cache whose layers have random codecs, or one codec in all layers, with the 95 % bootstrap interval of the measured KL divergence.",
    warning=warning_if_tiny,
    own_style=True,
)
def sensitivity_sum(tables: Tables):
    rows = with_absent(sensitivity_rows(tables), ["predicted_kl"]).filter(pl.col("predicted_kl") > 0, pl.col("kl_mean") > 0)
    if rows.is_empty():
        raise NoData("no codec is in several layers")
    kind = pl.when(pl.col("sensitive_format") == "mixture").then(pl.lit("random codecs")).otherwise(pl.lit("one codec"))
    rows = rows.with_columns(text("predicted_kl", "{:.2g}".format), kind=kind)
    ends = [*rows["predicted_kl"], *rows["kl_mean"], *rows["kl_mean_ci_low"].drop_nulls(), *rows["kl_mean_ci_high"].drop_nulls()]
    x = log_axis(alt.X, "predicted_kl", "sum of the KL of each layer's K and V alone [nats]", ends, "~e")
    y = log_axis(alt.Y, "kl_mean", KL, ends, "~e")
    base = alt.Chart().encode(x, y, tooltip=tips(predicted="predicted_kl_text", KL="kl_mean_text", interval_95="interval"))
    same = alt.Chart().mark_line(color=QUIET, strokeDash=[4, 3]).encode(alt.X("predicted_kl:Q"), alt.Y("predicted_kl:Q", title=KL))
    bars = base.encode(alt.Y("kl_mean_ci_low:Q", title=KL), alt.Y2("kl_mean_ci_high:Q")).mark_rule(color=QUIET)
    colour = alt.Color("kind:N", scale=alt.Scale(domain=["random codecs", "one codec"], range=COLOURS[:2]), legend=alt.Legend(title=None, orient="top"))
    points = base.encode(colour, opacity=in_focus()).mark_point(size=60, strokeWidth=1.8)
    return titled(panels(alt.layer(same, bars, points.add_params(legend_focus("kind"))), rows), how_far(rows))


def how_far(rows: pl.DataFrame) -> str:
    """The range of what was measured over what the sum says."""
    mixtures = rows.filter(pl.col("kind") == "random codecs")
    named = mixtures if mixtures.height else rows
    factors = (named["kl_mean"] / named["predicted_kl"]).sort()
    what = f"{named.height} random mixtures" if mixtures.height else f"{named.height} codecs in all layers"
    return f"The divergence of {what} is {factors[0]:.2f} to {factors[-1]:.2f} times the sum over their parts, with a median of {factors.median():.2f}"


def sensitivity_rows(tables: Tables) -> pl.DataFrame:
    """The cells in panels, with their texts."""
    rows = with_panel(of_experiment(tables.cells, "sensitivity", "kl_mean"))
    return rows.with_columns(text("kl_mean", "{:.2g}".format), interval("kl_mean_ci_low", "kl_mean_ci_high", "{:.2g}".format))
