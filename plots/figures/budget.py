"""The budget experiment: error against bytes, over the budgets of eviction policies."""

import math

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from families import VariantStyle
from known import label_of, label_text
from labels import AT_ENDS, with_point_labels
from marks import between, interval, length_choice, lines_over_budgets, panel_width, panels, text, tips
from messages import titled
from prepare import drawable, of_experiment, with_absent, with_front, with_panel
from style import bytes_text, log_axis

MOST_NAMED = 4  # policies that are equally good before none of them stands out


@figure(
    "budget",
    "Error against bytes, over budgets", "error",
    "Towards the lower left is better; the dashed line is the Pareto front, and orange dots may lie on it, by their intervals. A line "
    "is a policy over its budgets, a lone point a codec that keeps every token. Errors are means over a sequence's last tokens, with "
    "95 % intervals. Bytes are per input token, evicted ones included. Errors below 1e-9 are drawn at 1e-9.",
    at_one_length=True,
    own_style=True,
)
def budget(tables: Tables):
    rows = of_experiment(tables.cells, "budget", "held_bytes_per_token").filter(pl.col("series").is_not_null())
    rows = with_absent(with_panel(drawable(rows, "held_bytes_per_token", "err_rel_l2")), ["err_ci_low", "err_ci_high"])
    rows = rows.with_columns(
        # A line is one policy over budgets; a variant without a budget is a point of its own.
        spec=pl.col("variant"),
        variant=pl.col("series"),
        per_token=pl.col("held_bytes_per_token") / 1024,
        error=pl.col("err_rel_l2").clip(lower_bound=1e-9),
    )
    rows = with_front(rows, "err_ci_low", "err_ci_high").with_columns(
        text("held_bytes_per_token", bytes_text),
        text("err_rel_l2", "{:.3g}".format),
        text("kept_tokens", "{:.0f}".format),
        interval("err_ci_low", "err_ci_high", "{:.2g}".format),
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
    policies = None if rows["err_ci_low"].is_not_null().any() else best_policies(rows)
    message = policies or on_the_front(rows)
    rows = rows.with_columns(
        style.short(),
        # Lines have their names first, then what lies on the front.
        important=pl.len().over("panel", "seq_len", "variant") + pl.col("front").cast(pl.Float64) / 2,
        named=pl.col("per_token") == pl.col("per_token").max().over("panel", "seq_len", "variant"),
    )
    rows = with_point_labels(rows, "per_token", "error", axes, (panel_width(rows), height), "important", AT_ENDS)
    base = alt.Chart().encode(
        *axes,
        tooltip=tips(
            spec="spec", kept="kept_tokens_text", bytes_held="held_bytes_per_token_text", error="err_rel_l2_text",
            interval_95="interval", Pareto_front="place",
        ),
    )  # fmt: skip
    bar = between(base, "err_ci_low", "err_ci_high").transform_filter("datum.err_ci_low")
    return titled(panels(lines_over_budgets(base, bar, rows, style, 50), rows, height=height, choice=choice), message)


def on_the_front(rows: pl.DataFrame) -> dict[float, str]:
    """What lies on the front of every workload, or might."""
    found: dict[float, str] = {}
    for length, of in rows.group_by("seq_len", maintain_order=True):
        everywhere = of.group_by("spec").agg((pl.col("place") != "behind").all(), pl.col("per_token").max()).filter("place")
        names = [label_of(spec) for spec in everywhere.sort("per_token", "spec")["spec"]]
        workloads = of["panel"].n_unique()
        where = f"on the Pareto front{f' of all {workloads} workloads' if workloads > 1 else ''} at {length[0]:,.0f} tokens"
        none = f"None of {of['spec'].n_unique()} variants is {where}"
        listed = f"{', '.join(names[:MOST_NAMED])}{f' and {len(names) - MOST_NAMED} more' * (len(names) > MOST_NAMED)}"
        some = f"{listed} {'is' if len(names) == 1 else 'are'} {where}, or statistically tied with it"
        found[length[0]] = some if names else none
    return found


def best_policies(rows: pl.DataFrame) -> dict[float, str] | None:
    """Which policies have the least error over their budgets, by workload, or one within 5 % of it."""
    rows = rows.filter(pl.len().over("panel", "seq_len", "variant") > 1)
    if rows.is_empty():
        return None
    close = pl.col("error") < pl.col("error").min().over("seq_len", "panel") + math.log(1.05)
    means = rows.group_by("seq_len", "panel", "variant").agg(pl.col("error").log().mean()).filter(close)
    means = means.with_columns(label_text())
    first = means.sort("error", "variant").group_by("seq_len", "panel", maintain_order=True).agg("variant")
    found: dict[float, str] = {}
    for length, of in first.group_by("seq_len", maintain_order=True):
        best = dict(of.sort("panel")["panel", "variant"].rows())
        clear = {panel: ", ".join(called) for panel, called in best.items() if len(called) <= MOST_NAMED}
        said = [f"{called} {'has' if len(best[panel]) == 1 else 'have'} the least error{f' on {panel}' * bool(panel)}" for panel, called in clear.items()]
        alike = [panel for panel, names in best.items() if len(names) > MOST_NAMED]
        said += [f"no policy stands out{' on ' + ', '.join(alike) if any(alike) else ''}"] if alike else []
        found[length[0]] = f"At {length[0]:,.0f} tokens, {'; '.join(said)}"
    return found
