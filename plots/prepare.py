"""Turns tables as they were measured into tables as they are drawn: panels, the Pareto front, thinned growth steps."""

from __future__ import annotations

import polars as pl

# What a sweep can vary besides variant and length, in the order in which a panel's title names it.
DIMENSIONS = {
    "run": "{}",
    "device": "{}",
    "experiment": "{}",
    "phase": "{}",
    "workload": "{}",
    "layers": "{} layers",
    "q_heads": "{} query heads",
    "kv_heads": "{} KV heads",
    "head_dim": "head dim {}",
    "batch": "batch {}",
    "threads": "{} threads",
    "passage_tokens": "passage of {} tokens",
}
# Experiments that run a model: nothing in them is a step of the cache alone.
OF_MODELS = ["quality", "recall", "generate", "stream"]


class NoData(Exception):
    """The runs hold nothing that this figure could draw; the message says what is absent."""


def is_null_ab() -> pl.Expr:
    """The rows that time a variant against itself: they check the harness and are no further variant."""
    return pl.col("verdict").eq_missing("null")


def measured(cells: pl.DataFrame) -> pl.DataFrame:
    """The rows that figures draw."""
    return cells.filter((pl.col("status") == "ok") & ~is_null_ab())


def with_panel(
    rows: pl.DataFrame, same_over: tuple[str, ...] = (), values: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Adds `panel`, the title of the small multiple that a row belongs to, and sorts by it.

    Every dimension that varies splits, except one that another already tells (the phase may follow from the
    experiment), and those of `same_over` over which `values` do not change: memory, say, is not drawn once a workload
    when the workload makes no difference.
    """
    varying: list[str] = []
    for dimension in DIMENSIONS:
        if rows.n_unique([*varying, dimension]) > (rows.n_unique(varying) if varying else 1):
            varying.append(dimension)
    for dimension in same_over:
        others = [d for d in varying if d != dimension] + ["variant", "seq_len"]
        compared = rows.group_by(others).agg(
            pl.struct(values).n_unique().alias("distinct"), pl.col(dimension).n_unique().alias("several")
        )
        # Lengths that no two have in common say nothing about whether they agree.
        if dimension in varying and compared["distinct"].max() == 1 and compared["several"].max() > 1:
            varying.remove(dimension)
            rows = rows.unique(others, keep="first", maintain_order=True)
    titles = [
        " · ".join(title_of(d, value) for d, value in zip(varying, key))
        for key in rows.select(varying).iter_rows()
    ] or [""] * rows.height
    return rows.with_columns(panel=pl.Series(titles, dtype=pl.String)).sort(*varying, "variant", "seq_len")


def title_of(dimension: str, value) -> str:
    title = DIMENSIONS[dimension].format(format_dimension(value))
    return title.removesuffix("s") if value == 1 else title  # 1 thread


def format_dimension(value) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def stepped(cells: pl.DataFrame) -> pl.DataFrame:
    """Without the cells of experiments that have figures of their own, and whose bytes and lengths are no other's."""
    own = ["budget", "checkpoint", "prefill", "batch", *OF_MODELS]
    return cells.filter(~pl.col("experiment").is_in(own))


def drawable(cells: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows that measured all of `columns`, as more than zero: they go on log axes."""
    rows = cells.filter(*(pl.col(column) > 0 for column in columns))
    if rows.is_empty():
        raise NoData(f"no cell has {' and '.join(columns)}")
    return rows


def of_experiment(cells: pl.DataFrame, experiment: str, *columns: str) -> pl.DataFrame:
    """The rows of one experiment that measured all of `columns`."""
    rows = cells.filter(pl.col("experiment") == experiment, *(pl.col(column) >= 0 for column in columns))
    if rows.is_empty():
        raise NoData(f"no {experiment} experiment was run")
    return rows


def prefill_arms(cells: pl.DataFrame, column: str) -> pl.DataFrame:
    """The cells of the prefill experiment in panels, one a variant, a line an `arm_text`."""
    rows = of_experiment(cells, "prefill", column)
    chunk = pl.col("chunk_tokens").cast(pl.Int64).cast(pl.String)
    arm = pl.when(chunk.is_null()).then("arm").otherwise(pl.format("chunks of {} tokens", chunk))
    rows = with_panel(rows).with_columns(arm_text=arm)
    several = pl.when(pl.col("panel") == "").then("variant").otherwise(pl.format("{} · {}", "variant", "panel"))
    return rows.with_columns(panel=several if rows["variant"].n_unique() > 1 else pl.col("panel"))


def drops_tokens() -> pl.Expr:
    return (pl.col("kept_tokens") < pl.col("seq_len")).any().over("variant")


def by_what_is_kept(rows: pl.DataFrame) -> pl.DataFrame:
    """Panels apart for variants that keep every token, and for those that keep equally many: each has lines enough of its
    own. `variant` becomes the policy as the config has it, one look over all its budgets, and `spec` what it was."""
    kept = pl.when(drops_tokens()).then(pl.col("kept_tokens").max().over("variant")).otherwise(0.0)
    rows = rows.with_columns(kept=kept)
    title = pl.when(pl.col("kept") == 0).then(pl.lit("every token kept")).otherwise(
        pl.format("{} tokens kept", pl.col("kept").cast(pl.Int64))
    )  # fmt: skip
    if rows["kept"].n_unique() > 1:
        several = pl.when(pl.col("panel") == "").then(title).otherwise(pl.format("{} · {}", "panel", title))
        rows = rows.with_columns(panel=several).sort("kept", maintain_order=True)
    return rows.with_columns(spec=pl.col("variant"), variant=series())


def series() -> pl.Expr:
    """The policy as the config has it, with its {budget}; folders of earlier versions have the variant alone."""
    return pl.coalesce("series", "variant")


def by_position(positions: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The buckets of positions of the cells, in panels; adds `position`, the middle of a bucket."""
    if positions.is_empty():
        raise NoData("no quality experiment was run")
    known = cells.drop(set(positions.columns) & set(cells.columns) - {"run", "cell"})
    rows = with_panel(positions.filter(pl.col("kl_mean") > 0).join(known, on=["run", "cell"]))
    if rows.is_empty():
        raise NoData("no variant's predictions differ from the full f32 cache's")
    # Halfway on a log axis; the first bucket begins at 0, where such an axis has no place.
    middle = (pl.col("position_first").clip(lower_bound=4) * (pl.col("position_last") + 1)).sqrt()
    return by_what_is_kept(rows.with_columns(position=middle))


def with_loss_interval(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `low` and `high`, 1.96 standard errors from the mean loss."""
    loss, error = pl.col("loss"), 1.96 * pl.col("loss_se")
    return rows.with_columns(low=loss - error, high=loss + error)


def by_budget(recalls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The policies that drop tokens, in panels, one a distance, with the loss of the full f32 cache beside each, `full_loss`;
    and the full cache's own rows."""
    drops = drops_tokens().any().over(series())
    policies = recalls.filter(drops)
    full = recalls.filter(pl.col("verdict") == "baseline")
    if policies.is_empty():
        raise NoData("no policy of the recall experiment drops a token")
    rows = with_loss_interval(with_panel(policies)).with_columns(spec=pl.col("variant"), variant=series())
    at = pl.format("distance {}", pl.col("distance").cast(pl.Int64))
    several = pl.when(pl.col("panel") == "").then(at).otherwise(pl.format("{} · {}", at, "panel"))
    rows = rows.with_columns(panel=several).sort("distance", "variant", "kept_tokens", maintain_order=True)
    same_place = ["run", "distance", "passage_tokens", "batch"]
    beside = full.select(*same_place, full_loss="loss").unique(same_place)
    return rows.join(beside, on=same_place, how="left", nulls_equal=True), full


def by_stretch(positions: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The buckets of a stream, in panels; adds `position`, the end of a bucket, and `low` and `high`, the perplexities 1.96
    standard errors of the mean loss away."""
    streams = of_experiment(cells, "stream", "loss")
    known = streams.drop(set(positions.columns) & set(cells.columns) - {"run", "cell"})
    rows = with_loss_interval(with_panel(positions.join(known, on=["run", "cell"])))
    return rows.with_columns(
        position=pl.col("position_last") + 1,
        perplexity=pl.col("loss").exp(),
        low=pl.col("low").exp(),
        high=pl.col("high").exp(),
    )


def longest_growth(growth: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The steps of the longest run of each variant (shorter ones are its beginnings), in panels; adds `length`, the
    rows in the cache after the step."""
    if growth.is_empty():
        raise NoData("no growth experiment was run")
    # `variant` comes with the cell, so that a null A/B's steps, whose cell is not drawn, drop out with it.
    rows = growth.filter(pl.col("step_us") > 0).drop("variant").join(cells, on=["run", "cell"])
    if rows.is_empty():
        raise NoData("growth.csv has no steps of a finished cell")
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max().over("variant", *DIMENSIONS))
    first = min(longest["token"].min(), 1)  # whether the file counts tokens from 0 or from 1
    rows = with_panel(longest).with_columns(length=pl.col("token") - first + 1)
    return rows.sort("length", maintain_order=True)  # within a length the panels keep their order


def growth_totals(steps: pl.DataFrame) -> pl.DataFrame:
    """What a run has spent on appending and viewing, without attending, when it reaches 1, 2, 4, … rows: `total_us`,
    the median of the repetitions, between `low_us` and `high_us`."""
    step = pl.col("append_us") + pl.col("view_us").fill_null(0)
    spent = step.cum_sum().over("panel", "variant", "repetition")
    reached = steps.with_columns(spent=spent).filter(at_lengths(1 << power for power in range(40)))
    totals = reached.group_by("panel", "variant", "length", maintain_order=True).agg(
        total_us=pl.col("spent").median(), low_us=pl.col("spent").min(), high_us=pl.col("spent").max()
    )
    if totals.filter(pl.col("total_us") > 0).is_empty():
        raise NoData("growth.csv has no append_us")
    return totals.filter(pl.col("total_us") > 0)


def thin(rows: pl.DataFrame, budget: int) -> pl.DataFrame:
    """At most `budget` steps: the slowest and the fastest of each stretch of a log axis, so that no spike is lost."""
    if rows.height <= budget:
        return rows
    series = ["panel", "variant", "repetition"]
    stretches = budget / (2 * rows.n_unique(series))  # a series
    length = pl.col("length").log(2)
    keys = [*series, (length / length.max() * stretches).floor()]
    extremes = (pl.col("step_us").arg_max(), pl.col("step_us").arg_min())
    return rows.filter(pl.any_horizontal((pl.int_range(pl.len()) == end).over(keys) for end in extremes))


def at_lengths(lengths) -> pl.Expr:
    return pl.col("length").is_in(pl.Series(lengths, dtype=pl.Float64).implode())


def with_front(rows: pl.DataFrame) -> pl.DataFrame:
    """Marks the Pareto front of each (panel, length) and labels its points; equal points share a label and nest."""
    same = ["panel", "seq_len", "per_token", "error"]
    group = ["panel", "seq_len"]
    rows = rows.sort(*same, "step_p50_us")
    best_before = pl.col("error").cum_min().shift(1).over(group)
    others = pl.len().over(same) - 1
    label = pl.when(others == 0).then("variant").otherwise(pl.format("{} +{}", "variant", others))
    return rows.with_columns(
        front=best_before.is_null() | (pl.col("error") < best_before),
        front_label=label,
        size=280 / (1 + pl.int_range(pl.len()).over(same)),
    )
