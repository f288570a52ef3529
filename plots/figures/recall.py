"""The recall experiment: the loss on the second copy of a passage, against distance and against budget."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.models import by_kept_tokens, drops_tokens, model_style, series, versus_full, warning_if_tiny, with_loss_interval
from known import label_of
from marks import family_lines, interval, text, tips
from messages import titled
from prepare import NoData, of_experiment, panel_with, with_panel
from style import QUIET, bytes_text, length_axis


@figure(
    "recall",
    "Recall against distance", "quality",
    "Lower is better. A passage is repeated this many tokens later; only the predictions of the second copy count. A "
    "cache that evicted the first copy cannot recall it. The policies of a panel keep equally many tokens. Bars are "
    "1.96 standard errors of the mean.",
    warning=warning_if_tiny,
    own_style=True,
)
def recall(tables: Tables):
    rows = by_kept_tokens(with_panel(of_experiment(tables.cells, "recall", "loss", "distance")))
    rows = with_loss_interval(rows).with_columns(
        text("loss", "{:.3f}".format),
        text("held_bytes_per_token", bytes_text),
        text("kept_tokens", "{:.0f}".format),
        interval("low", "high", "{:.3f}".format),
    )
    message = who_recalls(rows)
    style = model_style(tables, rows)
    x = length_axis("distance", "distance from the passage to its copy [tokens]", rows["distance"])
    tooltip = tips(length=False, spec="spec", distance="distance", loss="loss_text", interval_95="interval", kept="kept_tokens_text")
    return titled(family_lines(rows, style, x, loss_axis(rows["high"], rows["loss"]), tooltip, bars=("low", "high")), message)


def who_recalls(rows: pl.DataFrame) -> str | None:
    """Which policy that drops tokens recalls as the full f32 cache does, as far as intervals say, at the longest distance."""
    full = full_cache(rows).unique("distance").select("distance", full_high="high")
    policies = rows.filter(pl.col("kept") > 0).join(full, on="distance")
    if policies.is_empty():
        return None
    as_well = policies.filter(pl.col("low") <= pl.col("full_high")).sort("distance", "kept_tokens", "loss", descending=[True, False, False])
    if as_well.is_empty():
        return "No policy that drops tokens recalls as well as the full cache at any distance measured"
    best = as_well.row(0, named=True)
    same = as_well.filter(pl.col("distance") == best["distance"]).height - 1
    others = f"and {same} other{'s' * (same > 1)} recall" if same else "recalls"
    return f"{label_of(best['spec'])} {others} the farthest of the policies that drop tokens: {best['distance']:,.0f} tokens back"


@figure(
    "recall_budget",
    "Recall against budget", "quality",
    "Lower is better. The same losses against the tokens that a policy keeps, one panel per distance; the dashed line is "
    "the full f32 cache. A window reaches it once it is longer than the distance; a policy that keeps the tokens that "
    "matter reaches it with fewer. Bars are 1.96 standard errors of the mean.",
    warning=warning_if_tiny,
)
def recall_budget(tables: Tables):
    rows, full = by_budget(of_experiment(tables.cells, "recall", "loss", "distance"))
    rows = rows.with_columns(
        text("loss", "{:.3f}".format), text("kept_tokens", "{:.0f}".format), interval("low", "high", "{:.3f}".format)
    )
    message = fewest_tokens(rows)
    style = model_style(tables, rows)
    x = length_axis("kept_tokens", "tokens kept at the end", rows["kept_tokens"])
    axis = loss_axis(rows["high"], rows["loss"], full["loss"])
    tooltip = tips(length=False, spec="spec", kept="kept_tokens_text", loss="loss_text", interval_95="interval")
    floor = alt.Chart().mark_rule(color=QUIET, strokeDash=[4, 3]).encode(alt.Y("full_loss:Q"))
    return titled(family_lines(rows, style, x, axis, tooltip, bars=("low", "high"), under=lambda _: [floor]), message)


def fewest_tokens(rows: pl.DataFrame) -> str:
    """Which policy is within its interval of the full f32 cache with the fewest tokens, at the longest distance where any is."""
    reached = rows.filter(pl.col("low") <= pl.col("full_loss")).sort("distance", "kept_tokens", "loss", descending=[True, False, False])
    if reached.is_empty():
        return "No budget reaches the full cache's loss at any distance measured"
    best = reached.row(0, named=True)
    return (f"{label_of(best['spec'])} reaches the full cache's loss with the fewest tokens ({best['kept_tokens']:,.0f}) at the "
            f"longest distance where any policy does ({best['distance']:,.0f} tokens)")  # fmt: skip


def full_cache(rows: pl.DataFrame) -> pl.DataFrame:
    """The full f32 cache's own rows."""
    return rows.filter(pl.col("verdict") == "baseline", versus_full())


def loss_axis(*shown: pl.Series) -> alt.Y:
    top = 1.05 * max(values.max() or 0 for values in shown)
    return alt.Y(
        "loss:Q",
        axis=alt.Axis(title="loss on the second copy [nats]"),
        scale=alt.Scale(domain=[0, top], nice=False),
    )


def by_budget(recalls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The policies that drop tokens, in panels, one a distance, with the loss of the full f32 cache beside each,
    `full_loss`; and the full cache's own rows."""
    drops = drops_tokens().any().over(series())
    policies = recalls.filter(drops)
    full = full_cache(recalls)
    if policies.is_empty() or full.is_empty():
        raise NoData("no policy of the recall experiment drops a token" if policies.is_empty() else "the full f32 cache did not recall")
    rows = with_loss_interval(with_panel(policies)).with_columns(spec=pl.col("variant"), variant=series())
    at = pl.format("distance {}", pl.col("distance").cast(pl.Int64))
    rows = rows.with_columns(panel=panel_with(at)).sort("distance", "variant", "kept_tokens", maintain_order=True)
    same_place = ["run", "distance", "passage_tokens", "batch"]
    beside = full.select(*same_place, full_loss="loss").unique(same_place)
    return rows.join(beside, on=same_place, how="left", nulls_equal=True), full
