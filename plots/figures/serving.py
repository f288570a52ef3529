"""Serving: requests answered by a model over real caches, in static and in continuous batches."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from figures.requests import COLOURS
from known import called
from marks import in_focus, interval, legend_focus, panels, scale, stacked_bars, text, tips, variant_axis
from messages import place, titled
from prepare import of_experiment, with_absent, with_panel
from style import binary_unit, bytes_text

ARMS = ("static", "whole")  # the others are numbers of tokens
PALETTE = ("#D55E00", "#5d6673", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
HELD = {"payload": "payload_mean_bytes", "other": "other_mean_bytes", "cached": "cached_mean_bytes", "slack": "slack_mean_bytes"}


def arms_of(rows: pl.DataFrame, arm: str = "batching") -> list[str]:
    found = set(rows[arm])
    return [name for name in ARMS if name in found] + sorted(found - set(ARMS), key=lambda name: (not name.isdigit(), len(name), name))


def largest_first(rows: pl.DataFrame) -> pl.DataFrame:
    """The panel with the most arms first: the title is about it."""
    return rows.sort(pl.len().over("panel"), descending=True, maintain_order=True)


def by_arm(tables: Tables, experiment: str, value: str, unit: str, heading: str, arm: str = "batching", legend: str = "batching"):
    """The value of each variant's arms, with its interval, a panel a sweep point."""
    low, high = f"{value}_ci_low", f"{value}_ci_high"
    rows = largest_first(with_panel(of_experiment(tables.cells, experiment, value)))
    rows = with_absent(rows, [low, high], [arm])
    rows = rows.with_columns(pl.col(arm).cast(pl.Int64 if rows[arm].dtype.is_numeric() else pl.String).cast(pl.String))
    said_of = lambda number: f"{number:.3g} {unit}".strip()  # noqa: E731
    replayed = [f"replay_{value}"] if f"replay_{value}" in rows.columns else []
    rows = rows.with_columns(*(text(column, said_of) for column in [value, *replayed]), interval(low, high, said_of))
    first = rows.filter(pl.col("panel") == rows["panel"][0]).sort(value, "variant")
    least, most = first.row(0, named=True), first.row(-1, named=True)
    said = f"{place(first)}The {heading} is {said_of(least[value])} with {called(least)}"
    said += f" and {said_of(most[value])} with {called(most)}" if first.height > 1 else ""
    arms, variants = arms_of(rows, arm), [name for name in tables.style.names if name in set(rows["variant"])]
    colours = scale({name: PALETTE[i % len(PALETTE)] for i, name in enumerate(arms)})
    more = {"replay": f"{replayed[0]}_text"} if replayed else {}
    base = alt.Chart().encode(
        variant_axis(variants),
        alt.YOffset(f"{arm}:N", sort=arms),
        alt.Color(f"{arm}:N", sort=arms, scale=colours, legend=alt.Legend(title=legend)),
        opacity=in_focus(),
        tooltip=tips(length=False, **{legend: arm}, value=f"{value}_text", interval_95="interval", **more),
    )
    title = f"{heading} [{unit}]" if unit else heading
    at = lambda column: alt.X(f"{column}:Q", axis=alt.Axis(title=title, tickCount=6))  # noqa: E731
    ends = base.mark_rule(strokeWidth=1.5).encode(at(low), alt.X2(f"{high}:Q"))
    dots = base.mark_point(filled=True, size=45).encode(at(value))
    height = max(60, 12 * len(arms) * len(variants))
    return titled(panels(alt.layer(ends, dots.add_params(legend_focus(arm))), rows, height=height), said)


@figure(
    "serve_ttft",
    "Time to the first token, 99th percentile, by cache and batching", "serving",
    "Lower is better. The time from a request's arrival to its first token: it waits for its turn and for its prompt. Dots are medians over "
    "repetitions of a run's 99th percentile, bars their 95 % intervals. Every answer equals that of the request served alone.",
)
def serve_ttft(tables: Tables):
    return by_arm(tables, "serve", "ttft_p99_s", "s", "p99 time to the first token")


@figure(
    "serve_tpot",
    "Time per token after the first, 99th percentile, by cache and batching", "serving",
    "Lower is better. A request's mean over its tokens after the first; prompts between its steps lengthen it. Dots are medians "
    "over repetitions of a run's 99th percentile, bars their 95 % intervals.",
)
def serve_tpot(tables: Tables):
    return by_arm(tables, "serve", "tpot_p99_ms", "ms", "p99 time per token after the first")


@figure(
    "serve_held",
    "Bytes held per running request, by kind", "serving",
    "Shorter is better. Mean bytes over the steps of the first repetition, divided by the mean number of running requests. Slack is "
    "reserved and not filled: the rest of a last block, or of the longest request. Cached are blocks of prefixes that no request uses. "
    "Free blocks are left out.",
)
def serve_held(tables: Tables):
    rows = with_panel(of_experiment(tables.cells, "serve", "running_mean", *HELD.values()))
    rows = rows.filter(pl.col("running_mean") > 0)
    rows = rows.with_columns(called=pl.Series([called(row) for row in rows.iter_rows(named=True)], dtype=pl.String))
    each = [(kind, pl.col(column) / pl.col("running_mean")) for kind, column in HELD.items()]
    rows = rows.with_columns(held=pl.sum_horizontal(expression for _, expression in each))
    rows = largest_first(rows.sort("held", "variant", maintain_order=True))
    first = rows.filter(pl.col("panel") == rows["panel"][0])
    least, most = first.row(0, named=True), first.row(-1, named=True)
    said = f"{place(first)}{called(least)} holds {bytes_text(least['held'])} per running request"
    said += f", {called(most)} holds {bytes_text(most['held'])}" if first.height > 1 else ""
    unit, size = binary_unit(rows["held"].max())
    stacked = pl.concat(
        rows.select("variant", "called", "panel", "batching", kind=pl.lit(kind), order=pl.lit(i), bytes=expression, held_units=expression / size)
        for i, (kind, expression) in enumerate(each)
    ).with_columns(text("bytes", bytes_text))
    names = rows.sort(pl.col("variant").replace_strict({name: at for at, name in enumerate(tables.style.names)}), "held")["called"].unique(maintain_order=True)
    base = alt.Chart().encode(variant_axis(names, field="called"), tooltip=tips(length=False, batching="batching", kind="kind", bytes="bytes_text"))
    x = alt.X("sum(held_units):Q", axis=alt.Axis(title=f"held per running request [{unit}]", tickCount=5))
    return titled(panels(stacked_bars(base, x, "kind", COLOURS), stacked, height=max(60, 22 * len(names))), said)


@figure(
    "acceptance",
    "Drafted tokens that are accepted, by draft cache and length of drafts", "serving",
    "Higher is better. The model drafts with a cheap cache and verifies with the full one, so only the cache can make it reject a token. Dots are "
    "means of accepted / proposed over the steps that verify, bars 95 % intervals over texts. Every text equals the one without drafts.",
)
def acceptance(tables: Tables):
    return by_arm(tables, "speculate", "acceptance", "", "share of proposed tokens that are accepted", "proposed_tokens", "draft length")
