"""The mean absolute error of each variant."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from prepare import NoData


@figure("mean_abs", "Mean absolute error", "error", "Further left is better: a bar is a variant's mean over its cells.")
def mean_abs(tables: Tables):
    if "err_mean_abs" not in tables.cells.columns:
        raise NoData("no run has err_mean_abs")
    rows = tables.cells.group_by("variant").agg(pl.col("err_mean_abs").mean())
    return alt.Chart(rows).mark_bar().encode(x="err_mean_abs:Q", y="variant:N")
