"""Turns cells as measured into cells as drawn: which rows, in which panels, on the Pareto front or not.

What only one family of charts needs is in its own file below figures/.
"""

import math
from collections.abc import Iterable, Mapping

import polars as pl
from known import AXES, dimensions
from style import length_text


class NoData(Exception):
    """The runs hold nothing that this figure could draw; the message says what is absent."""


def is_aa_test() -> pl.Expr:
    """The rows that time a variant against itself: they check the harness and are no further variant."""
    return pl.col("verdict").is_in(["aa_test", "null"]).fill_null(False)


def measured(cells: pl.DataFrame) -> pl.DataFrame:
    """The rows that figures draw."""
    return cells.filter((pl.col("status") == "ok") & ~is_aa_test())


def in_order(rows: pl.DataFrame, column: str) -> pl.Expr:
    """A column of texts that sorts in the order of `rows`: 8,192 before 32,768."""
    return pl.col(column).cast(pl.Enum(rows[column].unique(maintain_order=True)))


def with_panel(
    rows: pl.DataFrame, same_over: tuple[str, ...] = (), values: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Adds `panel`, the title of the small multiple that a row belongs to, and sorts by it.

    Every dimension that varies splits, except one that another already tells (the phase may follow from the
    experiment), and those of `same_over` over which `values` do not change: memory, say, is not drawn once a workload
    when the workload makes no difference.
    """
    varying: list[str] = []
    for dimension in dimensions(rows.columns):
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


def panel_with(part: pl.Expr, last: bool = False) -> pl.Expr:
    """The panel's title with a part before it, or after it."""
    both = ("panel", part) if last else (part, "panel")
    return pl.when(pl.col("panel") == "").then(part).otherwise(pl.format("{} · {}", *both))


def along(names: Iterable[str]) -> list[str]:
    """The axes whose values lie within a panel; a chunk's tokens are a part of a cell's arm."""
    return [name for name, axis in AXES.items() if not axis.title and not axis.is_arm and name in names]


def place(row: Mapping) -> str:
    """Where in its panel a row lies: '1K tokens', 'distance 320', 'lengths uniform', '1K tokens · temperature 0.8'."""
    values = {name: row[name] for name in along(row) if name != "seq_len" and row[name] is not None}
    said = [f"{name} {value}" if isinstance(value, str) else f"{name} {value:.10g}" for name, value in values.items()]
    if row.get("prompt_p50_tokens") is not None:
        said.insert(0, f"{row['requests']:,.0f} requests of {row['prompt_p50_tokens']:,.0f} + {row['output_p50_tokens']:,.0f} tokens (p50)")
    elif not values.keys() & {"distance", "lengths"}:
        said.insert(0, "length not recorded" if row["seq_len"] is None else f"{length_text(row['seq_len'])} tokens")
    return " · ".join(said)


def layers_said(cells: pl.DataFrame) -> str:
    """Which layers of the model the bytes and times of these cells are of: 'one layer of 32', 'all 24 layers'."""
    several, of_several = (cells[name].drop_nulls().unique() for name in ("layers", "model_layers"))
    if len(several) != 1 or len(of_several) > 1:
        return "measured layers"
    layers, of = several[0], of_several[0] if len(of_several) else None
    if of == layers and layers > 1:
        return f"all {layers:.0f} layers"
    counted = "one layer" if layers == 1 else f"{layers:.0f} layers"
    return f"{counted} of {of:.0f}" if of and of > layers else counted


def title_of(dimension: str, value) -> str:
    title = (AXES[dimension].title if dimension in AXES else "{}").format(format_dimension(value))
    return title.removesuffix("s") if value == 1 else title  # 1 thread


def format_dimension(value) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def drawable(cells: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows that measured all of `columns`, as more than zero: they go on log axes."""
    rows = with_absent(cells, columns).filter(*(pl.col(column) > 0 for column in columns))
    if rows.is_empty():
        raise NoData(f"no cell has {' and '.join(columns)}")
    return rows


def of_experiment(cells: pl.DataFrame, experiment: str, *columns: str) -> pl.DataFrame:
    """The rows of one experiment that measured all of `columns`."""
    measured_all = (pl.col(column) >= 0 for column in columns)
    rows = with_absent(cells, columns).filter(pl.col("experiment") == experiment, *measured_all)
    if rows.is_empty():
        raise NoData(f"no {experiment} experiment was run")
    return rows


def with_absent(cells: pl.DataFrame, numbers: Iterable[str], text: Iterable[str] = ()) -> pl.DataFrame:
    """Adds the columns that folders of earlier versions lack, as not measured."""
    types = {**dict.fromkeys(numbers, pl.Float64), **dict.fromkeys(text, pl.String)}
    absent = {name: dtype for name, dtype in types.items() if name not in cells.columns}
    return cells.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in absent.items())


ON_FRONT, AMBIGUOUS = "on the front", "ambiguous"


def with_front(rows: pl.DataFrame, low: str = "error", high: str = "error") -> pl.DataFrame:
    """Marks the Pareto front of each (panel, length); equal points nest. `place` says
    where a point is: on the front, behind, or ambiguous where nothing that is as small has an error whose interval, from `low`
    to `high`, lies below this one's. An oracle is behind whatever it loses."""
    rows = with_absent(rows, [], ["oracle"])
    named = pl.when(pl.col("oracle").is_null())
    same = ["panel", "seq_len", "per_token", "error"]
    group = ["panel", "seq_len"]
    rows = rows.sort(in_order(rows, "panel"), *same[1:], "step_p50_us")
    best_before = named.then("error").otherwise(math.inf).cum_min().shift(1).over(group)
    rows = rows.with_columns(
        front=pl.col("oracle").is_null() & (best_before.is_null() | (pl.col("error") < best_before)),
        least_high=named.then(pl.coalesce(high, "error")).otherwise(math.inf).cum_min().over(group),
    )
    # Of points that are as small as each other, the last one's has seen all.
    certain = pl.col("least_high").last().over([*group, "per_token"])
    rows = rows.with_columns(may_be=pl.col("front") | pl.col("oracle").is_null() & (pl.coalesce(low, "error") <= certain))
    return rows.with_columns(
        place=pl.when(pl.col("front").any().over(same)).then(pl.lit(ON_FRONT)).when("may_be").then(pl.lit(AMBIGUOUS)).otherwise(pl.lit("behind")),
        size=280 / (1 + pl.int_range(pl.len()).over(same)),
    )
