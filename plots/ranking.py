"""The one rule by which variants are ranked: which may be named at all, which come first, and which are statistically tied.

Answers, Pareto fronts and the site use it. Two times are compared by their ratios to the baseline's, whose intervals decide the
verdicts, so that nothing is called faster than the baseline and tied with it. Only where a row has no ratio do the intervals of
the times themselves decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

# Largest errors with which a variant may be called the fastest or the smallest; the first that a row has decides.
LIMITS = {"err_rel_l2": 0.2, "kl_mean": 0.1, "loss_change": 0.1}
SAID = {"err_rel_l2": "an error of at most 0.2", "kl_mean": "a KL divergence of at most 0.1 nats", "loss_change": "a loss of at most 0.1 nats more"}


def limit_of(row: Mapping) -> str | None:
    """The column of the error that has a limit."""
    return next((column for column in LIMITS if row.get(column) is not None), None)


def keeps_limit(row: Mapping) -> bool:
    """Also where no error was measured."""
    column = limit_of(row)
    return column is None or row[column] <= LIMITS[column]


Reach = tuple[float, float, float]  # value, and the ends of its interval


def paces(rows: Iterable[Mapping], prefix: str) -> list[Reach] | None:
    """Each row's time over the baseline's, of the columns that begin with `prefix`; None where one has no such ratio."""
    found = [pace(row, prefix) for row in rows]
    return None if None in found else found


def pace(row: Mapping, prefix: str) -> Reach | None:
    if not prefix:
        return None
    if row["verdict"] == "baseline":
        return 1.0, 1.0, 1.0
    known = tuple(row.get(prefix + column) for column in ("_p50", "_ci_low", "_ci_high"))
    return None if None in known else known


def with_reach(rows: pl.DataFrame, group: list[str]) -> pl.DataFrame:
    """Adds `low` and `high`, between which a step's time lies: as a ratio where all rows of a group have one."""
    is_baseline = (pl.col("verdict") == "baseline").fill_null(False)
    all_ratios = (is_baseline | pl.col("ratio_ci_low").is_not_null()).all().over(group)
    ends = {
        end: pl.when(~all_ratios).then(pl.coalesce(f"step_ci_{end}_us", "step_p50_us")).when(is_baseline).then(1.0).otherwise(f"ratio_ci_{end}")
        for end in ("low", "high")
    }
    return rows.with_columns(**ends)
