"""The quality experiment: what a cache changes in the predictions of a model, against bytes and by position."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.models import by_kept_tokens, change_axis, model_style, position_range, series, versus_full, warning_if_tiny
from known import label_of
from labels import with_point_labels
from marks import family_lines, interval, length_choice, lines_over_budgets, panel_width, panels, text, tips
from messages import answer, at_each_length, titled
from prepare import NoData, of_experiment, with_absent, with_front, with_panel
from style import bytes_text, length_axis, log_axis

KL_TITLE = "KL(full f32 cache || variant), mean [nats]"
LOSS_TITLE = "change of the mean loss [nats]"
NOTHING_CHANGED = "no variant's predictions differ from the full f32 cache's"


@figure(
    "quality_kl",
    "KL divergence of the predictions against bytes", "quality",
    "Towards the lower left is better; the dashed line is the Pareto front, and orange dots may lie on it, by their intervals. The KL "
    "divergence compares the next token's distribution with the full f32 cache's on the same text (95 % bootstrap intervals). "
    "A line is a policy over its budgets, a lone point a codec that keeps every token.",
    at_one_length=True,
    warning=warning_if_tiny,
    own_style=True,
)
def quality_kl(tables: Tables):
    quality = of_experiment(tables.cells, "quality", "kl_mean")
    ends = all_values(quality, "kl_mean", "kl_mean_ci_low", "kl_mean_ci_high")
    if not any(x > 0 for x in ends):
        raise NoData(NOTHING_CHANGED)
    return quality_points(tables, "kl_mean", KL_TITLE, log_axis(alt.Y, "error", KL_TITLE, ends, "~e"))


@figure(
    "quality_loss",
    "Change of the loss against bytes", "quality",
    "Towards the lower left is better; the dashed line is the Pareto front, and orange dots may lie on it, by their intervals. The "
    "change is the mean loss minus the full f32 cache's on the same tokens; a 95 % bootstrap interval that contains 0 shows no "
    "difference. 0.01 nats are 1 % of the perplexity. The axis is linear within 0.001 nats of zero.",
    at_one_length=True,
    warning=warning_if_tiny,
)
def quality_loss(tables: Tables):
    quality = quality_rows(tables, "loss_change")
    ends = all_values(quality, "loss_change_ci_low", "loss_change_ci_high")
    return quality_points(tables, "loss_change", LOSS_TITLE, change_axis("error", LOSS_TITLE, ends))


@figure(
    "kl_position",
    "KL divergence by position", "quality",
    "Lower is better; bands are 95 % bootstrap intervals. A line that rises with the position shows an error that accumulates; "
    "one that jumps at the policy's budget has begun to evict. Variants that predict exactly as the full f32 cache have no line.",
    at_one_length=True,
    warning=warning_if_tiny,
)
def kl_position(tables: Tables):
    rows = by_position(tables.positions, tables.cells).with_columns(
        text("kl_mean", "{:.2g}".format),
        interval("kl_mean_ci_low", "kl_mean_ci_high", "{:.2g}".format),
        span=position_range(),
    )
    choice = length_choice(rows["seq_len"])
    message = at_each_length(rows, at_the_last_position)
    style = model_style(tables, rows)
    ends = all_values(rows, "kl_mean", "kl_mean_ci_low", "kl_mean_ci_high")
    powers = [8 << i for i in range(20) if 8 << i <= rows["position_last"].max() + 1]
    axis = log_axis(alt.Y, "kl_mean", KL_TITLE, ends, "~e")
    tooltip = tips(spec="spec", positions="span", KL="kl_mean_text", interval_95="interval")
    x, band = length_axis("position", "position in the window [tokens]", powers), ("kl_mean_ci_low", "kl_mean_ci_high", 0.13)
    return titled(family_lines(rows, style, x, axis, tooltip, band=band, choice=choice), message)


def change_of_loss(rows: pl.DataFrame) -> str:
    """How many variants change the loss by more than their interval, and which one most."""
    changed = rows.filter((pl.col("loss_change_ci_low") > 0) | (pl.col("loss_change_ci_high") < 0))
    if changed.is_empty():
        return f"None of {rows.height} variants changes the loss by more than its interval"
    worst = changed.sort(pl.col("loss_change").abs()).row(-1, named=True)
    ends = f"{worst['loss_change_ci_low']:+.2g} to {worst['loss_change_ci_high']:+.2g}"
    return (f"{changed.height} of {rows.height} variants change the loss by more than their intervals; "
            f"{label_of(worst['spec'])} changes it most, by {worst['loss_change']:+.2g} nats ({ends}),")  # fmt: skip


def at_the_last_position(rows: pl.DataFrame) -> str:
    """The variants whose predictions differ least and most where the text is longest."""
    rows = rows.filter(pl.col("position_last") == pl.col("position_last").max())
    return f"In the last tokens, {least_and_most(rows)}"


def least_and_most(rows: pl.DataFrame) -> str:
    named = with_absent(rows, [], ["oracle"]).filter(pl.col("oracle").is_null())
    rows = (rows if named.is_empty() else named).sort("kl_mean", "spec")
    least, most = (f"{label_of(row['spec'])} ({row['kl_mean']:.1g} nats)" for row in (rows.row(0, named=True), rows.row(-1, named=True)))
    return f"predictions differ most with {most}" + (f" and least with {least}" if rows.height > 1 else "")


MESSAGES = {
    "kl_mean": lambda rows: answer(rows) or f"P{least_and_most(rows)[1:]}",
    "loss_change": change_of_loss,
}


def all_values(rows: pl.DataFrame, *columns: str) -> list[float]:
    return [value for column in columns for value in rows[column].drop_nulls()]


def quality_points(tables: Tables, value: str, title: str, axis: alt.Y):
    """Quality against bytes: a line a policy over its budgets, a lone point a codec, and the front of them all."""
    rows = quality_rows(tables, value)
    choice = length_choice(rows["seq_len"])
    style = model_style(tables, rows)
    held = [rows["per_token"].min() / 1.1, rows["per_token"].max() * 1.1]
    axes = log_axis(alt.X, "per_token", "bytes held per input token, all layers", held), axis
    height = 440
    message = at_each_length(rows, MESSAGES[value])
    rows = rows.with_columns(
        style.short(),
        named=pl.col("per_token") == pl.col("per_token").max().over("panel", "seq_len", "variant"),
    )
    rows = with_point_labels(rows, "per_token", "error", axes, (panel_width(rows), height), "front")
    base = alt.Chart().encode(
        *axes,
        tooltip=tips(
            spec="spec", bytes_held="held_bytes_per_token_text", perplexity="perplexity_text",
            loss_change="loss_change_text", KL="kl_mean_text", top1_agreement="top1_agreement_text",
            interval_95="interval", verdict="verdict", Pareto_front="place",
        ),
    )  # fmt: skip
    bar = base.encode(alt.Y(f"{value}_ci_low:Q", title=title), alt.Y2(f"{value}_ci_high:Q"))
    return titled(panels(lines_over_budgets(base, bar, rows, style, 65), rows, height=height, choice=choice), message)


def quality_rows(tables: Tables, value: str) -> pl.DataFrame:
    """The cells whose predictions differ, in panels; adds `per_token`, `error` and the Pareto front of the two."""
    rows = of_experiment(tables.cells, "quality", "held_bytes_per_token").filter(
        pl.col(value).is_not_null() & (pl.col("kl_mean") > 0)
    )
    if rows.is_empty():
        raise NoData(NOTHING_CHANGED)
    if value == "loss_change":
        rows = rows.filter(versus_full())
    if rows.is_empty():
        raise NoData("losses are compared with a baseline that the config names: see that chart")
    rows = with_panel(rows).with_columns(
        spec=pl.col("variant"),
        variant=series(),
        per_token=pl.col("held_bytes_per_token"),
        error=pl.col(value),
    )
    return with_front(rows, f"{value}_ci_low", f"{value}_ci_high").with_columns(
        text("held_bytes_per_token", bytes_text),
        text("perplexity", "{:.4g}".format),
        text("loss_change", "{:+.2g}".format),
        text("kl_mean", "{:.2g}".format),
        text("top1_agreement", "{:.2%}".format),
        interval(f"{value}_ci_low", f"{value}_ci_high", "{:.2g}".format),
    )


def by_position(positions: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The buckets of positions of the cells, in panels; adds `position`, the middle of a bucket."""
    if positions.is_empty():
        raise NoData("no quality experiment was run")
    known = cells.drop(set(positions.columns) & set(cells.columns) - {"run", "cell"})
    rows = with_panel(positions.filter(pl.col("kl_mean") > 0).join(known, on=["run", "cell"]))
    if rows.is_empty():
        raise NoData(NOTHING_CHANGED)
    # Halfway on a log axis; the first bucket begins at 0, where such an axis has no place.
    middle = (pl.col("position_first").clip(lower_bound=4) * (pl.col("position_last") + 1)).sqrt()
    return by_kept_tokens(rows.with_columns(position=middle))
