"""The budget experiment: error against bytes, over the budgets of eviction policies."""

from __future__ import annotations

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from marks import length_choice, line_and_points, panels, text, tips
from prepare import drawable, of_experiment, with_panel
from style import VariantStyle, bytes_text, log_axis


@figure(
    "budget",
    "Error against bytes, over budgets",
    "Towards the lower left is better. A line is a policy over its budgets, a lone point a codec that keeps every "
    "token. Errors are means over the last tokens of a sequence; bytes are payload, metadata and slack over the input "
    "tokens, evicted ones included. A policy that wins on one workload and loses on another rests on an assumption "
    "about attention that only the first one meets. Errors below 1e-9 are drawn at 1e-9.",
    at_one_length=True,
)
def budget(tables: Tables):
    rows = of_experiment(tables.cells, "budget", "held_bytes_per_token").filter(pl.col("series").is_not_null())
    rows = with_panel(drawable(rows, "held_bytes_per_token", "err_rel_l2"))
    rows = rows.with_columns(
        # A line is one policy over budgets; a variant without a budget is a point of its own.
        spec=pl.col("variant"),
        variant=pl.col("series"),
        per_token=pl.col("held_bytes_per_token") / 1024,
        error=pl.col("err_rel_l2").clip(lower_bound=1e-9),
    ).with_columns(
        text("held_bytes_per_token", bytes_text),
        text("err_rel_l2", "{:.3g}".format),
        text("kept_tokens", "{:.0f}".format),
    )
    choice = length_choice(rows["seq_len"])
    style = VariantStyle(set(rows["variant"]))
    base = alt.Chart().encode(
        log_axis(
            alt.X,
            "per_token",
            "bytes held per input token, all layers [KiB]",
            [rows["per_token"].min() / 1.1, rows["per_token"].max() * 1.1],
        ),
        log_axis(alt.Y, "error", "relative L2 error of the output, mean", rows["error"], "~e"),
        tooltip=tips(
            spec="spec", kept="kept_tokens_text", bytes_held="held_bytes_per_token_text", error="err_rel_l2_text"
        ),
    )
    line, points = line_and_points(base, style)
    height = max(280, 17 * len(style.shown) // 2)
    return panels(alt.layer(line.encode(order="per_token:Q"), points), rows, height=height, choice=choice)
