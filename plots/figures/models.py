"""What the charts of model predictions share: names of lines, intervals of the loss, the warning on tiny models."""

import altair as alt
import polars as pl
from figures.figure import Tables
from families import VariantStyle, baseline_of
from known import Spec, spec_of
from prepare import panel_with, with_absent

TINY_PARAMETERS = 50e6  # in layers; the bundled model has a million, SmolLM2 106 million


def warning_if_tiny(tables: Tables) -> str:
    """What goes with charts of predictions unless each model that predicted is known to have enough parameters."""
    cells = with_absent(tables.cells, ["loss", "model_layers", "q_heads", "head_dim"]).filter(pl.col("loss").is_not_null())
    parameters = 12 * pl.col("model_layers") * (pl.col("q_heads") * pl.col("head_dim")) ** 2
    if cells.select((parameters >= TINY_PARAMETERS).fill_null(False).all()).item():
        return ""
    return (
        "Tiny models exaggerate the loss of quality: trust the order of the variants, not the size of the gaps, "
        "and measure your own model."
    )


def series() -> pl.Expr:
    """The policy as the config has it, with its {budget}; folders of earlier versions have the variant alone."""
    return pl.coalesce("series", "variant")


def model_style(tables: Tables, rows: pl.DataFrame) -> VariantStyle:
    """One colour and shape a policy over all figures of models."""
    cells = with_absent(tables.cells, ["loss"]).filter(pl.col("loss").is_not_null())
    return VariantStyle(set(cells.select(series()).to_series()), rows["variant"], baseline_of(cells))


def versus_full() -> pl.Expr:
    """Whether losses are compared with the full f32 cache's, as they are where the config names no baseline."""
    is_full = pl.col("versus").map_elements(lambda name: spec_of(name) == Spec(spec_of(name).placement), return_dtype=pl.Boolean)
    return is_full.fill_null(True)


def task_read() -> pl.Expr:
    """What a quality or recall cell reads: '1,024 tokens of text', 'recall 320 tokens back'."""
    tokens = pl.when(pl.col("experiment") == "recall").then("distance").otherwise("seq_len")
    texts = {"quality": "{:,.0f} tokens of text", "recall": "recall {:,.0f} tokens back"}
    return pl.struct("experiment", tokens=tokens).map_elements(
        lambda row: texts[row["experiment"]].format(row["tokens"]), return_dtype=pl.String
    )


def drops_tokens() -> pl.Expr:
    return (pl.col("kept_tokens") < pl.col("seq_len")).any().over("variant")


def by_kept_tokens(rows: pl.DataFrame) -> pl.DataFrame:
    """A panel for the variants that keep every token, and one for those that keep equally many: no panel has too many
    lines. `variant` becomes the policy as the config has it, one style over all its budgets, and `spec` what it was."""
    kept = pl.when(drops_tokens()).then(pl.col("kept_tokens").max().over("variant")).otherwise(0.0)
    rows = rows.with_columns(kept=kept)
    title = pl.when(pl.col("kept") == 0).then(pl.lit("every token kept")).otherwise(
        pl.format("{} tokens kept", pl.col("kept").cast(pl.Int64))
    )  # fmt: skip
    if rows["kept"].n_unique() > 1:
        rows = rows.with_columns(panel=panel_with(title, last=True)).sort("kept", maintain_order=True)
    return rows.with_columns(spec=pl.col("variant"), variant=series())


def with_loss_interval(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `low` and `high`, 1.96 standard errors from the mean loss."""
    loss, error = pl.col("loss"), 1.96 * pl.col("loss_se")
    return rows.with_columns(low=loss - error, high=loss + error)


def change_axis(field: str, title: str, ends: list[float], channel=alt.Y):
    """Of a change of the loss: linear near 0, where signs and zero matter, logarithmic beyond."""
    ticks = [sign * 10.0**power for sign in (-1, 1) for power in range(-3, 2)] + [0]
    low, high = min(ends, default=0), max(ends, default=1)
    domain = [1.3 * min(low, -2e-4), 1.3 * max(high, 2e-4)]
    return channel(
        f"{field}:Q",
        scale=alt.Scale(type="symlog", constant=1e-3, nice=False, domain=domain),
        axis=alt.Axis(title=title, values=ticks, format="~r"),
    )


def position_range() -> pl.Expr:
    """A bucket of positions as it reads in a tooltip."""
    first, last = (pl.col(end).cast(pl.Int64) for end in ("position_first", "position_last"))
    return pl.format("{} to {}", first, last)
