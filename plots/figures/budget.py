"""The budget experiment: error against bytes, over the budgets of eviction policies."""

from __future__ import annotations

import math

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from families import VariantStyle
from labels import AT_ENDS, with_point_labels
from marks import click_focus, in_focus, length_choice, panel_width, panels, point_names, text, tips
from messages import titled
from prepare import drawable, of_experiment, with_panel
from style import bytes_text, log_axis

MOST_NAMED = 4  # policies that are equally good before none of them stands out


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
    style = VariantStyle(set(rows["variant"]), baseline=tables.style.baseline)
    axes = (
        log_axis(
            alt.X,
            "per_token",
            "bytes held per input token, all layers [KiB]",
            [rows["per_token"].min() / 1.1, rows["per_token"].max() * 1.1],
        ),
        log_axis(alt.Y, "error", "relative L2 error of the output, mean", rows["error"], "~e"),
    )
    height = 300
    message = best_policies(rows, style.short_names())
    rows = rows.with_columns(
        style.short(),
        budgets=pl.len().over("panel", "seq_len", "variant"),
        named=pl.col("per_token") == pl.col("per_token").max().over("panel", "seq_len", "variant"),
    )
    rows = with_point_labels(rows, "per_token", "error", axes, (panel_width(rows), height), "budgets", AT_ENDS)
    base = alt.Chart().encode(
        *axes,
        tooltip=tips(
            spec="spec", kept="kept_tokens_text", bytes_held="held_bytes_per_token_text", error="err_rel_l2_text"
        ),
    )
    legend = style.legend_of(rows)
    line = base.mark_line(strokeWidth=1.8).encode(style.colour(legend), style.dash(), opacity=in_focus(), order="per_token:Q")
    points = base.mark_point(size=50, strokeWidth=1.8).encode(style.colour(legend), style.shape(legend), opacity=in_focus())
    layers = [line, points.add_params(click_focus()), point_names(base)]
    return titled(panels(alt.layer(*layers), rows, height=height, choice=choice), message)


def best_policies(rows: pl.DataFrame, names: dict[str, str]) -> dict[float, str] | None:
    """Which policies have the least error over their budgets, by workload, or one within 5 % of it."""
    rows = rows.filter(pl.len().over("panel", "seq_len", "variant") > 1)
    if rows.is_empty():
        return None
    close = pl.col("error") < pl.col("error").min().over("seq_len", "panel") + math.log(1.05)
    means = rows.group_by("seq_len", "panel", "variant").agg(pl.col("error").log().mean()).filter(close)
    means = means.with_columns(pl.col("variant").replace_strict(names, default=None))
    first = means.sort("error", "variant").group_by("seq_len", "panel", maintain_order=True).agg("variant")
    found: dict[float, str] = {}
    for length, of in first.group_by("seq_len", maintain_order=True):
        best = dict(of.sort("panel")["panel", "variant"].rows())
        clear = {panel: ", ".join(called) for panel, called in best.items() if len(called) <= MOST_NAMED}
        said = [f"{panel}: {called}" if panel else called for panel, called in clear.items()]
        alike = [panel for panel, names in best.items() if len(names) > MOST_NAMED]
        said += [f"no policy stands out{' on ' + ', '.join(alike) if any(alike) else ''}"] if alike else []
        found[length[0]] = f"Least error of the policies at {length[0]:,.0f} tokens: {'; '.join(said)}"
    return found
