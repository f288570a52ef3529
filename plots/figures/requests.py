"""Replays: requests through caches' own allocators on a simulated clock."""

import altair as alt
import polars as pl
from figures.figure import Tables, figure
from known import label_of, label_text
from marks import in_focus, legend_focus, panels, scale, text, tips, variant_axis
from messages import place, titled
from prepare import NoData, of_experiment, with_absent, with_panel
from style import KINDS, QUIET, binary_unit, bytes_text

COUNTS = {"running": "#0072B2", "waiting": "#D55E00"}
HELD = {"payload": "payload_bytes", "slack": "slack_bytes", "other": "other_bytes", "cached": "cached_bytes"}
COLOURS = {"payload": KINDS["payload"], "other": KINDS["metadata"], "cached": "#9fc5b0", "slack": KINDS["slack"]}
POINT = ["run", "workload", "arrivals", "machine", "step_tokens"]
MOST_SHOWN = 6  # variants of a chart over time


def replays(tables: Tables, *columns: str) -> pl.DataFrame:
    return with_panel(of_experiment(tables.cells, "replay", "running_peak", *columns))


def over_time(tables: Tables) -> pl.DataFrame:
    """The stretches of the sweep point under the greatest load, where most requests wait, a panel a variant."""
    cells = replays(tables, "waiting_p99")
    if tables.moments.is_empty():
        raise NoData("the folder has no replay.csv")
    waits = cells.group_by(POINT, maintain_order=True).agg(pl.col("waiting_p99").max(), pl.col("running_peak").max())
    point = waits.sort("waiting_p99", "running_peak", descending=True, maintain_order=True).head(1)
    cells = cells.join(point.select(POINT), on=POINT, nulls_equal=True, maintain_order="left")
    names = [name for name in tables.style.names if name in set(cells["variant"])][:MOST_SHOWN]
    cells = cells.filter(pl.col("variant").is_in(names))
    rows = tables.moments.join(cells.select("run", "cell", where="panel"), on=["run", "cell"], maintain_order="left")
    order = pl.col("variant").replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
    return rows.with_columns(order=order, panel=label_text()).sort("order", "time_s")


def time_axis() -> alt.X:
    return alt.X("time_s:Q", axis=alt.Axis(title="time of the replay's clock [s]", format=",~r", tickCount=6))


def where(rows: pl.DataFrame) -> str:
    return f"{rows['where'][0]}: " if rows["where"][0] else ""


@figure(
    "replay_concurrency",
    "Sequences that run at once", "serving",
    "The bar is the median over the time in which any sequence runs, the tick the 99th percentile, the circle the maximum. More is "
    "better where requests wait; where none wait, more at once means only that each takes longer.",
)
def replay_concurrency(tables: Tables):
    rows = replays(tables, "running_p50", "running_p99")
    rows = with_absent(rows, ["preemptions_per_1000", "waiting_p99", "good_share"], ["times_from"])
    rows = rows.with_columns(
        text("preemptions_per_1000", "{:,.1f}".format),
        text("waiting_p99", "{:,.0f}".format),
        text("good_share", "{:.1%}".format),
    )
    first = rows.filter(pl.col("panel") == rows.sort("waiting_p99", descending=True, nulls_last=True)["panel"][0])
    first = first.sort("running_p50", "variant")
    least, most = first.row(0, named=True), first.row(-1, named=True)
    said = f"{place(first)}{label_of(most['variant'])} runs {most['running_p50']:,.0f} sequences at once in the median"
    if first.height > 1:
        said += f", {label_of(least['variant'])} runs {least['running_p50']:,.0f}"
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    base = alt.Chart().encode(
        variant_axis(variants),
        tooltip=tips(length=False, median="running_p50", p99="running_p99", most="running_peak", waiting_p99="waiting_p99_text",
                     preempted_per_1000="preemptions_per_1000_text", good="good_share_text", times_are="times_from"),
    )  # fmt: skip
    at = lambda column: alt.X(f"{column}:Q", axis=alt.Axis(title="sequences that run at once", tickCount=6))  # noqa: E731
    bars = base.mark_bar(color=COUNTS["running"], opacity=0.6).encode(at("running_p50"))
    ticks = base.mark_tick(color=QUIET, thickness=2).encode(at("running_p99"))
    most_at_once = base.mark_point(color=QUIET, size=40).encode(at("running_peak"))
    return titled(panels(alt.layer(bars, ticks, most_at_once), rows, height=max(60, 24 * len(variants))), said)


@figure(
    "replay_requests",
    "Requests that run and that wait, over time", "serving",
    "Means over equal intervals of the replay's clock, at the sweep point where most requests wait. A request waits until there is "
    "memory for its first chunk, and again when it is preempted. The scheduler counts the requests; column `times_from` says where "
    "the times come from.",
)
def replay_requests(tables: Tables):
    rows = over_time(tables)
    most = rows.group_by("variant", maintain_order=True).agg(pl.col("running").max(), pl.col("waiting").max())
    least, best = (most.sort("waiting", "variant", descending=down).row(0, named=True) for down in (True, False))
    said = f"{where(rows) + 'with' if where(rows) else 'With'} {label_of(least['variant'])} up to {least['waiting']:,.0f} requests wait while {least['running']:,.0f} run"
    if most.height > 1:
        said += f", with {label_of(best['variant'])} {best['waiting']:,.0f} wait while {best['running']:,.0f} run"
    both = pl.concat(
        rows.select("variant", "panel", "time_s", kind=pl.lit(kind), requests=pl.col(kind)) for kind in COUNTS
    )
    both = both.with_columns(text("requests", "{:,.1f}".format), text("time_s", "{:,.0f} s".format))
    line = alt.Chart().mark_line(strokeWidth=1.5, interpolate="step-before").encode(
        time_axis(),
        alt.Y("requests:Q", axis=alt.Axis(title="requests", tickCount=5)),
        alt.Color("kind:N", scale=scale(COUNTS), legend=alt.Legend(title="requests that")),
        opacity=in_focus(),
        tooltip=tips(length=False, until="time_s_text", kind="kind", requests="requests_text"),
    )
    return titled(panels(line.add_params(legend_focus("kind")), both, height=200), said)


@figure(
    "replay_memory",
    "Bytes held over time, by kind", "serving",
    "Payload is stored K and V. Slack is reserved and not filled: the rest of last blocks, or of the longest length. Other bytes are "
    "block tables, scores and tokens that a codec keeps unquantised; cached ones are blocks of prefixes that no sequence uses. Means "
    "over equal intervals, at the sweep point where most requests wait, without free blocks.",
)
def replay_memory(tables: Tables):
    rows = with_absent(over_time(tables), HELD.values())
    total = rows.group_by("variant", maintain_order=True).agg(
        payload=pl.col("payload_bytes").sum(), slack=pl.col("slack_bytes").sum()
    )
    share = total.filter(pl.col("payload") + pl.col("slack") > 0).with_columns(
        share=pl.col("slack") / (pl.col("payload") + pl.col("slack"))
    ).sort("share", "variant")
    if share.is_empty():
        raise NoData("no tokens were held")
    least, most = share.row(0, named=True), share.row(-1, named=True)
    said = f"{where(rows)}{most['share']:.0%} of what {label_of(most['variant'])} reserves for tokens is empty"
    if share.height > 1:
        said += f"; with {label_of(least['variant'])} it is {least['share']:.1%}"
    unit, size = binary_unit(rows.select(pl.max_horizontal(HELD.values())).to_series().max())
    # Stacked here: Vega-Lite would give each variant the others' times, with nothing held at them.
    stacked, below = [], pl.lit(0.0)
    for kind in COLOURS:
        top = below + pl.col(HELD[kind]).fill_null(0) / size
        stacked.append(
            rows.select("variant", "panel", "time_s", kind=pl.lit(kind), bytes=pl.col(HELD[kind]), low=below, high=top)
        )
        below = top
    stacked = pl.concat(stacked).filter(pl.col("bytes").is_not_null())
    stacked = stacked.with_columns(text("bytes", bytes_text), text("time_s", "{:,.0f} s".format))
    area = alt.Chart().mark_area(interpolate="step-before").encode(
        time_axis(),
        alt.Y("low:Q", axis=alt.Axis(title=f"held [{unit}]", tickCount=5)),
        alt.Y2("high:Q"),
        alt.Color("kind:N", scale=scale(COLOURS), legend=alt.Legend(title="kind")),
        opacity=in_focus(),
        tooltip=tips(length=False, until="time_s_text", kind="kind", held="bytes_text"),
    )
    return titled(panels(area.add_params(legend_focus("kind")), stacked, height=200), said)


CURVES = {"least recently used": "#0072B2", "Belady's optimum": "#009E73", "without limit": "#5d6673"}


@figure(
    "hit_rate",
    "Hit rate of a prefix cache at every capacity", "serving",
    "Higher is better. The share of the blocks of all prompts that a cache of this capacity would find if it served one request "
    "after another, computed from stack distances. No policy finds more than Belady's optimum, which knows the future; a cache "
    "without limit finds every block but the first of its kind. Bytes are those of the first variant.",
)
def hit_rate(tables: Tables):
    if tables.hits.is_empty():
        raise NoData("no replayed trace has ids of blocks")
    cells = replays(tables).select("run", "cell", "workload")
    rows = tables.hits.join(cells, on=["run", "cell"], maintain_order="left")
    first = [name for name in tables.style.names if name in set(rows["variant"])][0]
    rows = rows.filter(pl.col("variant") == first)
    tokens = pl.col("block_tokens").cast(pl.Int64)
    rows = rows.with_columns(panel=pl.format("{}, blocks of {} tokens", "workload", tokens))
    rows = rows.unique(["panel", "capacity_bytes"], keep="first", maintain_order=True).sort("panel", "capacity_bytes")  # alike on all machines
    whole = rows.filter(pl.col("panel") == rows["panel"][0])
    known = whole.row(-1, named=True)
    half = whole.filter(pl.col("hit_rate") >= known["hit_rate_at_any"] / 2)
    said = f"{known['panel']}: a cache without limit finds {known['hit_rate_at_any']:.1%} of the blocks"
    if half.height:
        said += f", one of {bytes_text(half['capacity_bytes'][0])} finds half as many"
    columns = dict(zip(CURVES, ("hit_rate", "belady_hit_rate", "hit_rate_at_any")))
    drawn = pl.concat(
        rows.select("variant", "panel", "capacity_bytes", "capacity_blocks", kind=pl.lit(kind), found=pl.col(column))
        for kind, column in columns.items()
    )
    drawn = drawn.with_columns(text("capacity_bytes", bytes_text), text("found", "{:.2%}".format))
    line = alt.Chart().mark_line(strokeWidth=1.8).encode(
        alt.X("capacity_bytes:Q", scale=alt.Scale(type="log", nice=False),
              axis=alt.Axis(title="capacity of the prefix cache [bytes]", format="~s", tickCount=8)),
        alt.Y("found:Q", axis=alt.Axis(title="blocks found / blocks of prompts", format=".0%")),
        alt.Color("kind:N", scale=scale(CURVES), legend=alt.Legend(title="eviction")),
        opacity=in_focus(),
        tooltip=tips(length=False, kind="kind", capacity="capacity_bytes_text", blocks="capacity_blocks", found="found_text"),
    )  # fmt: skip
    return titled(panels(line.add_params(legend_focus("kind")), drawn), said)
