"""The stream experiment: perplexity over a text longer than the model's context."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.models import position_range, warning_if_tiny, with_loss_interval
from families import VariantStyle
from known import label_of
from marks import family_lines, interval, length_choice, text, tips
from messages import at_each_length, titled
from prepare import of_experiment, with_panel
from style import QUIET, log_axis


@figure(
    "stream",
    "Perplexity over a long stream", "quality",
    "Lower is better. Each point is the perplexity since the previous point, with 1.96 standard errors of the mean loss. "
    "The dashed line is the trained context. Beyond it, a cache that keeps every token has query-key distances that the "
    "model never saw; so do sinks, unless RoPE uses cache positions. Recompute runs the model over the last tokens from "
    "scratch.",
    at_one_length=True,
    warning=warning_if_tiny,
    own_style=True,
)
def stream(tables: Tables):
    rows = by_stretch(tables.positions, tables.cells).with_columns(
        text("perplexity", "{:.4g}".format),
        interval("low", "high", "{:.4g}".format),
        span=position_range(),
    )
    choice = length_choice(rows["seq_len"])
    message = at_each_length(rows, at_the_end)
    style = VariantStyle(set(rows["variant"]))
    ends = [value for column in ("perplexity", "low", "high") for value in rows[column].drop_nulls()]
    position = alt.X(
        "position:Q",
        axis=alt.Axis(title="position in the stream [tokens]", format=",d"),
        scale=alt.Scale(domain=[0, rows["position"].max()], nice=False),
    )
    axis = log_axis(alt.Y, "perplexity", "perplexity since the previous point", ends, "~r")
    tooltip = tips(positions="span", perplexity="perplexity_text", interval_95="interval")
    trained = alt.Chart().mark_rule(color=QUIET, strokeDash=[4, 3]).encode(alt.X("trained_tokens:Q"))
    band = "low", "high", 0.13
    return titled(family_lines(rows, style, position, axis, tooltip, band=band, under=lambda _: [trained], height=420, choice=choice), message)


def at_the_end(rows: pl.DataFrame) -> str:
    """The lowest and the highest perplexity of the last stretch."""
    rows = rows.filter(pl.col("position") == pl.col("position").max()).sort("perplexity", "variant")
    said = [f"{label_of(row['variant'])} has a perplexity of {row['perplexity']:.3g}" for row in rows.rows(named=True)]
    return said[0] + (f", {said[-1].replace('has a perplexity of', 'one of')}" if len(said) > 1 else "")


def by_stretch(positions: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The buckets of positions of a stream, in panels; adds `position`, the end of a bucket, and `low` and `high`, the
    perplexities 1.96 standard errors of the mean loss away."""
    streams = of_experiment(cells, "stream", "loss")
    known = streams.drop(set(positions.columns) & set(cells.columns) - {"run", "cell"})
    rows = with_loss_interval(with_panel(positions.join(known, on=["run", "cell"])))
    return rows.with_columns(
        position=pl.col("position_last") + 1,
        perplexity=pl.col("loss").exp(),
        low=pl.col("low").exp(),
        high=pl.col("high").exp(),
    )
