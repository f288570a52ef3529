"""One function a figure, and the list of them all: FIGURES, at the end of this file.

Each takes the runs' tables and returns a chart, or raises NoData with the reason why there is nothing to draw.
A figure becomes small multiples ("panels") over whatever the sweep varied besides variant and length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import polars as pl
from marks import (
    doublings,
    in_focus,
    interval,
    legend_focus,
    length_choice,
    line_and_points,
    panels,
    room_below,
    scale,
    text,
    tips,
)
from prepare import (
    OF_MODELS,
    NoData,
    at_lengths,
    by_budget,
    by_position,
    by_stretch,
    by_what_is_kept,
    drawable,
    growth_totals,
    longest_growth,
    of_experiment,
    prefill_arms,
    series,
    stepped,
    thin,
    with_front,
    with_loss_interval,
    with_panel,
)
from roofline import bound_table, time_table
from style import (
    COLOURS,
    INK,
    KINDS,
    QUIET,
    SHAPES,
    VariantStyle,
    binary_unit,
    bytes_axis,
    bytes_text,
    length_axis,
    log_axis,
    microseconds_text,
    natural_order,
)

BATCH_KINDS = {"payload": "bytes_payload", "metadata": "bytes_metadata", "slack": "bytes_slack"}
MOST_LABELLED = 8  # variants whose names still fit beside their points
MAX_GROWTH_POINTS = 20_000  # what a browser still draws at once; the maxima always survive


@dataclass
class Tables:
    cells: pl.DataFrame
    growth: pl.DataFrame
    positions: pl.DataFrame
    style: VariantStyle


@dataclass
class Figure:
    name: str  # file name and anchor
    title: str
    how_to_read: str
    draw: Callable[[Tables], alt.TopLevelMixin]
    at_one_length: bool = False  # drawn for the length that a menu chooses; its title says which
    warning: str = ""  # what goes with the figure wherever it is shown, under its title


def memory(tables: Tables):
    memory_columns = ("bytes_payload", "bytes_metadata", "bytes_slack", "bytes_workspace_peak")
    rows = drawable(stepped(tables.cells), "bytes_peak", "seq_len")
    rows = with_panel(rows, ("workload", "experiment", "phase", "threads"), memory_columns).with_columns(
        text("bytes_peak", bytes_text),
        text("bytes_predicted", bytes_text),
        text("memory_vs_f32", "{:.3f}×".format),
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        bytes_axis("bytes_peak", "peak memory, all layers", rows["bytes_peak"]),
        tooltip=tips(
            memory="bytes_peak_text", predicted="bytes_predicted_text", versus_f32="memory_vs_f32_text"
        ),
    )
    return panels(alt.layer(*line_and_points(base, style)), rows)


def bytes_by_kind(tables: Tables):
    rows = drawable(stepped(tables.cells), "bytes_payload", "seq_len", "batch")
    kinds = dict(zip(KINDS, ("bytes_payload", "bytes_metadata", "bytes_workspace_peak", "bytes_slack")))
    rows = with_panel(rows, ("workload", "experiment", "phase", "threads"), tuple(kinds.values()))
    unit, size = binary_unit(rows["bytes_per_token"].max())
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", "bytes_per_token", kind=pl.lit(kind), order=pl.lit(order),
            bytes=pl.col(column), per_token=pl.col(column) / (pl.col("batch") * pl.col("seq_len") * size),
        )
        for order, (kind, column) in enumerate(kinds.items())
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text))
    choice = length_choice(rows["seq_len"])
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    bars = alt.Chart().mark_bar(stroke=QUIET, strokeWidth=0.5)
    chart = bars.encode(
        alt.Y("variant:N", sort=variants, axis=alt.Axis(title=None, labelFontSize=11)),
        alt.X(
            "sum(per_token):Q",
            axis=alt.Axis(title=f"bytes per cached token, all layers [{unit}]", tickCount=6),
        ),
        alt.Color("kind:N", scale=scale(KINDS), legend=alt.Legend(title="kind")),
        alt.Order("order:Q"),
        opacity=in_focus(),
        tooltip=tips(kind="kind", bytes="bytes_text"),
    )
    height = max(60, 22 * len(variants))
    return panels(chart.add_params(legend_focus("kind")), stacked, height=height, choice=choice)


def latency(tables: Tables):
    rows = drawable(stepped(tables.cells), "step_p50_us", "seq_len")
    rows = with_panel(rows).with_columns(
        text("step_p50_us", microseconds_text),
        text("step_p99_us", microseconds_text),
        interval("step_ci_low_us", "step_ci_high_us", microseconds_text),
        pl.col("verdict").fill_null("–"),
    )
    extremes = pl.concat([rows["step_p50_us"], rows["step_ci_low_us"], rows["step_ci_high_us"]]).drop_nulls()
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        log_axis(alt.Y, "step_p50_us", "time of one step, p50 [µs]", extremes),
        tooltip=tips(
            p50="step_p50_us_text", interval_95="interval", p99="step_p99_us_text", verdict="verdict"
        ),
    )
    bounds = base.encode(alt.Y("step_ci_low_us:Q"), alt.Y2("step_ci_high_us:Q"))
    band = bounds.mark_area().encode(style.fill(), opacity=in_focus(0.16, 0.02))
    bar = bounds.mark_rule(strokeWidth=1.5).encode(style.colour(), opacity=in_focus())
    return panels(alt.layer(band, bar, *line_and_points(base, style)), rows)


def growth_steps(tables: Tables):
    rows = longest_growth(tables.growth, tables.cells)
    # Lengths 3, 6, 12, … for the shapes: away from the powers of two, where doubling caches have their spikes.
    away_from_spikes = at_lengths(3 << power for power in range(40))
    markers = rows.filter((pl.col("repetition") == pl.col("repetition").min()) & away_from_spikes)
    thinned = thin(rows, MAX_GROWTH_POINTS)
    rows = pl.concat([thinned.with_columns(mark=False), markers.with_columns(mark=True)])
    rows = rows.with_columns(text("step_us", microseconds_text)).select(
        "variant", "panel", "repetition", "length", "step_us", "mark", "step_us_text"
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("length", "cache length after the step [tokens]", doublings(rows["length"])),
        log_axis(alt.Y, "step_us", "time of one step [µs]", rows["step_us"]),
        style.colour(),
        tooltip=tips(length=False, tokens="length", repetition="repetition", step="step_us_text"),
    )
    steps = base.transform_filter("!datum.mark")
    line = steps.mark_line(strokeWidth=0.8).encode(detail="repetition:N", opacity=in_focus(0.55, 0.03))
    dots = steps.mark_circle(size=7).encode(opacity=in_focus(0.75, 0.02)).add_params(legend_focus())
    shapes = base.transform_filter("datum.mark").mark_point(
        size=70, filled=True, stroke="white", strokeWidth=0.8
    )
    return panels(alt.layer(line, dots, shapes.encode(style.shape(), opacity=in_focus())), rows)


def growth_total(tables: Tables):
    rows = growth_totals(longest_growth(tables.growth, tables.cells)).with_columns(
        text("total_us", microseconds_text), interval("low_us", "high_us", microseconds_text)
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("length", "cache length [tokens]", rows["length"]),
        log_axis(alt.Y, "total_us", "append and view, summed [µs]", rows["total_us"]),
        tooltip=tips(length=False, tokens="length", summed="total_us_text", repetitions="interval"),
    )
    return panels(alt.layer(*line_and_points(base, style)), rows)


def pareto(tables: Tables):
    rows = drawable(stepped(tables.cells), "err_rel_l2", "bytes_per_token", "step_p50_us")
    rows = with_panel(rows).with_columns(
        per_token=pl.col("bytes_per_token") / 1024, error=pl.col("err_rel_l2").clip(lower_bound=1e-9)
    )
    rows = with_front(rows).with_columns(
        text("bytes_per_token", bytes_text),
        text("step_p50_us", microseconds_text),
        text("err_rel_l2", "{:.3g}".format),
    )
    choice = length_choice(rows["seq_len"])
    fastest, slowest = rows["step_p50_us"].min(), rows["step_p50_us"].max()
    fill_scale = alt.Scale(
        type="log", scheme="viridis", reverse=True, domain=[fastest, max(slowest, fastest * 1.01)]
    )
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        log_axis(
            alt.X, "per_token", "memory per cached token, all layers [KiB]", room_below(rows["per_token"])
        ),
        log_axis(alt.Y, "error", "relative L2 error of the output", room_below(rows["error"]), "~e"),
    )
    on_front = base.transform_filter("datum.front")
    line = on_front.mark_line(interpolate="step-after", color=QUIET, strokeDash=[4, 3], strokeWidth=1.3)
    points = base.mark_point(strokeWidth=2.2, opacity=1).encode(
        alt.Fill(
            "step_p50_us:Q",
            scale=fill_scale,
            legend=alt.Legend(title="step, p50 [µs]", format=",.3~r", gradientLength=130, tickCount=4),
        ),
        style.stroke(),
        style.shape(),
        alt.Size("size:Q", scale=None),
        opacity=in_focus(),
        tooltip=tips(memory="bytes_per_token_text", error="err_rel_l2_text", step="step_p50_us_text"),
    )
    layers = [line.encode(order="per_token:Q"), points.add_params(legend_focus())]
    if len(style.shown) <= MOST_LABELLED and rows["panel"].n_unique() == 1:
        # Below and left of the front there are no points to collide with.
        label = on_front.mark_text(align="right", baseline="top", dx=-13, dy=5, fontSize=11, color=INK)
        layers.append(label.encode(text="front_label:N"))
    return panels(alt.layer(*layers), rows, choice=choice)


def bandwidth(tables: Tables):
    hot_or_cold = pl.any_horizontal(pl.col("ceiling_share", "cold_ceiling_share").is_not_null())
    rows = tables.cells.filter(hot_or_cold & (pl.col("seq_len") > 0))
    if rows.is_empty():
        raise NoData("no cell has ceiling_share or cold_ceiling_share")
    names = {"share": "ceiling_share", "read": "read_gbps", "ceiling": "ceiling_gbps"}
    rows = with_panel(rows)
    several = rows["panel"].n_unique() > 1
    sides = [
        rows.with_columns(
            *(pl.col(prefix + column).alias(name) for name, column in names.items()),
            panel=pl.concat_str(pl.col("panel"), pl.lit((" · " if several else "") + side)),
        )
        for side, prefix in (("hot cache", ""), ("cold cache", "cold_"))
    ]
    rows = pl.concat(sides).filter(pl.col("share").is_not_null())
    gbps = "{:.3g} GB/s".format
    rows = rows.with_columns(text("share", "{:.1%}".format), text("read", gbps), text("ceiling", gbps))
    style = tables.style.showing(rows["variant"])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", rows["seq_len"]),
        alt.Y(
            "share:Q",
            axis=alt.Axis(title="share of the read ceiling", format="%"),
            scale=alt.Scale(domain=[0, max(1.05, 1.05 * rows["share"].max())], nice=False),
        ),
        tooltip=tips(share="share_text", read="read_text", ceiling="ceiling_text"),
    )
    roof = alt.Chart().mark_rule(color=INK, strokeDash=[2, 3]).encode(y=alt.datum(1))
    return panels(alt.layer(*line_and_points(base, style), roof), rows)


def kernels(tables: Tables):
    return bound_table(tables.cells, tables.style.names)


def kernels_ratio(tables: Tables):
    return time_table(tables.cells, tables.style.names)


def budget(tables: Tables):
    rows = tables.cells.filter((pl.col("experiment") == "budget") & pl.col("series").is_not_null())
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
            "bytes held per token given, all layers [KiB]",
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


def checkpoint(tables: Tables):
    operations = ["save", "load", "freeze", "unfreeze", "fork"]
    rows = with_panel(drawable(tables.cells, "fork_p50_us", "seq_len"))
    several = rows["panel"].n_unique() > 1
    title = pl.concat_str("variant", pl.lit(" · "), "panel") if several else pl.col("variant")
    long = pl.concat(
        rows.select(
            "variant", "seq_len", panel=title, operation=pl.lit(operation), time=pl.col(f"{operation}_p50_us"),
            bytes=pl.col("fork_bytes" if operation == "fork" else "saved_bytes"),
        )
        for operation in operations
    )  # fmt: skip
    long = long.with_columns(text("time", microseconds_text), text("bytes", bytes_text)).sort("panel", "seq_len")
    colours = alt.Scale(domain=operations, range=COLOURS[: len(operations)])
    shapes = alt.Scale(domain=operations, range=SHAPES[: len(operations)])
    base = alt.Chart().encode(
        length_axis("seq_len", "sequence length [tokens]", long["seq_len"]),
        log_axis(alt.Y, "time", "time of one sequence, p50 [µs]", long["time"]),
        alt.Color("operation:N", scale=colours, sort=operations),
        opacity=in_focus(),
        tooltip=tips(operation="operation", p50="time_text", bytes="bytes_text"),
    )
    points = base.mark_point(size=55, strokeWidth=1.8).encode(
        alt.Shape("operation:N", scale=shapes, sort=operations)
    )
    line = base.mark_line(strokeWidth=1.8).add_params(legend_focus("operation"))
    return panels(alt.layer(line, points), long)


def arm_lines(base: alt.Chart, rows: pl.DataFrame):
    """A line an arm of the prefill experiment."""
    arms = natural_order(set(rows["arm_text"]))
    colours = dict(zip(arms, COLOURS * (1 + len(arms) // len(COLOURS))))
    legend = alt.Legend(title="arm", symbolDash=[1, 0], symbolFillColor="white", symbolStrokeWidth=2)
    colour = alt.Color("arm_text:N", scale=scale(colours), legend=legend)
    line = base.mark_line(strokeWidth=1.8).encode(colour, opacity=in_focus())
    shapes = alt.Scale(domain=arms, range=[SHAPES[i % len(SHAPES)] for i in range(len(arms))])
    points = base.mark_point(size=65, strokeWidth=1.8).encode(
        colour, alt.Shape("arm_text:N", scale=shapes, legend=legend), opacity=in_focus()
    )
    return [line.add_params(legend_focus("arm_text")), points]


def prefill_workspace(tables: Tables):
    rows = prefill_arms(tables.cells, "bytes_workspace_peak").filter(pl.col("bytes_workspace_peak") > 0)
    rows = rows.with_columns(text("bytes_workspace_peak", bytes_text))
    base = alt.Chart().encode(
        length_axis("seq_len", "prompt length [tokens]", rows["seq_len"]),
        bytes_axis("bytes_workspace_peak", "peak workspace", rows["bytes_workspace_peak"]),
        tooltip=tips(arm="arm_text", workspace="bytes_workspace_peak_text"),
    )
    return panels(alt.layer(*arm_lines(base, rows)), rows)


def prefill_time(tables: Tables):
    rows = prefill_arms(tables.cells, "prefill_p50_us").with_columns(
        text("prefill_p50_us", microseconds_text),
        interval("prefill_ci_low_us", "prefill_ci_high_us", microseconds_text),
    )
    ends = ("prefill_p50_us", "prefill_ci_low_us", "prefill_ci_high_us")
    base = alt.Chart().encode(
        length_axis("seq_len", "prompt length [tokens]", rows["seq_len"]),
        log_axis(
            alt.Y, "prefill_p50_us", "time of the prompt, p50 [µs]", pl.concat([rows[end] for end in ends]).drop_nulls()
        ),
        tooltip=tips(arm="arm_text", p50="prefill_p50_us_text", interval_95="interval"),
    )
    bar = base.encode(alt.Y("prefill_ci_low_us:Q"), alt.Y2("prefill_ci_high_us:Q")).mark_rule(
        strokeWidth=1.5, color=QUIET
    )
    return panels(alt.layer(bar.encode(opacity=in_focus()), *arm_lines(base, rows)), rows)


def batch_waste(tables: Tables):
    rows = of_experiment(tables.cells, "batch", "bytes_payload", "waste_share")
    rows = with_panel(rows)
    several = rows["lengths"].n_unique() > 1
    panel = pl.concat_str(pl.lit("lengths "), "lengths", pl.lit(", batch "), pl.col("batch").cast(pl.Int64))
    rows = rows.with_columns(panel=panel) if several else rows
    stacked = pl.concat(
        rows.select(
            "variant", "panel", "seq_len", "waste_share", "lengths", kind=pl.lit(kind), order=pl.lit(order),
            bytes=pl.col(column), times_payload=pl.col(column) / pl.col("bytes_payload"),
        )
        for order, (kind, column) in enumerate(BATCH_KINDS.items())
    ).filter(pl.col("bytes") > 0)  # fmt: skip
    stacked = stacked.with_columns(text("bytes", bytes_text), text("waste_share", "{:.1%}".format))
    variants = [name for name in tables.style.names if name in set(rows["variant"])]
    chart = (
        alt.Chart()
        .mark_bar(stroke=QUIET, strokeWidth=0.5)
        .encode(
            alt.Y("variant:N", sort=variants, axis=alt.Axis(title=None, labelFontSize=11)),
            alt.X("sum(times_payload):Q", axis=alt.Axis(title="bytes held / bytes of payload", tickCount=5)),
            alt.Color(
                "kind:N",
                scale=scale({kind: KINDS[kind] for kind in BATCH_KINDS}),
                legend=alt.Legend(title="kind"),
            ),
            alt.Order("order:Q"),
            opacity=in_focus(),
            tooltip=tips(length=False, lengths="lengths", kind="kind", bytes="bytes_text", waste="waste_share_text"),
        )
    )
    return panels(chart.add_params(legend_focus("kind")), stacked, height=max(60, 22 * len(variants)))


def quality_points(tables: Tables, value: str, title: str, axis: alt.Y):
    """Quality against bytes: a line a policy over its budgets, a lone point a codec, and the front of them all."""
    rows = of_experiment(tables.cells, "quality", "held_bytes_per_token").filter(
        pl.col(value).is_not_null() & (pl.col("kl_mean") > 0)
    )
    if rows.is_empty():
        raise NoData("no variant's predictions differ from the full f32 cache's")
    rows = with_panel(rows).with_columns(
        spec=pl.col("variant"),
        variant=series(),
        per_token=pl.col("held_bytes_per_token"),
        error=pl.col(value),
    )
    rows = with_front(rows).with_columns(
        text("held_bytes_per_token", bytes_text),
        text("perplexity", "{:.4g}".format),
        text("loss_change", "{:+.2g}".format),
        text("kl_mean", "{:.2g}".format),
        text("top1_agreement", "{:.2%}".format),
        interval(f"{value}_ci_low", f"{value}_ci_high", "{:.2g}".format),
    )
    choice = length_choice(rows["seq_len"])
    style = reading_style(tables, rows)
    base = alt.Chart().encode(
        log_axis(
            alt.X,
            "per_token",
            "bytes held per token given, all layers",
            [rows["per_token"].min() / 1.1, rows["per_token"].max() * 1.1],
        ),
        axis,
        tooltip=tips(
            spec="spec", bytes_held="held_bytes_per_token_text", perplexity="perplexity_text",
            loss_change="loss_change_text", KL="kl_mean_text", same_top_token="top1_agreement_text",
            interval_95="interval", verdict="verdict",
        ),
    )  # fmt: skip
    front = base.transform_filter("datum.front").mark_line(
        interpolate="step-after", color=QUIET, strokeDash=[4, 3], strokeWidth=1.3
    )
    bar = base.encode(alt.Y(f"{value}_ci_low:Q", title=title), alt.Y2(f"{value}_ci_high:Q"))
    line, points = line_and_points(base, style)
    layers = [
        front.encode(order="per_token:Q"),
        bar.mark_rule(strokeWidth=1.5).encode(style.colour(), opacity=in_focus()),
        line.encode(order="per_token:Q"),
        points,
    ]
    height = max(380, 17 * len(style.shown))
    return panels(alt.layer(*layers), rows, height=height, choice=choice)


def quality_kl(tables: Tables):
    title = "KL(full f32 cache || variant), mean [nats]"
    quality = of_experiment(tables.cells, "quality", "kl_mean")
    ends = [x for column in ("kl_mean", "kl_mean_ci_low", "kl_mean_ci_high") for x in quality[column].drop_nulls()]
    if not any(x > 0 for x in ends):
        raise NoData("no variant's predictions differ from the full f32 cache's")
    return quality_points(tables, "kl_mean", title, log_axis(alt.Y, "error", title, ends, "~e"))


def quality_loss(tables: Tables):
    title = "change of the mean loss [nats]"
    # Linear near 0, where signs and zero matter, logarithmic beyond.
    ticks = [sign * 10.0**power for sign in (-1, 1) for power in range(-3, 2)] + [0]
    quality = of_experiment(tables.cells, "quality", "kl_mean")
    ends = [x for column in ("loss_change_ci_low", "loss_change_ci_high") for x in quality[column].drop_nulls()]
    low, high = min(ends, default=0), max(ends, default=1)
    axis = alt.Y(
        "error:Q",
        scale=alt.Scale(
            type="symlog", constant=1e-3, nice=False, domain=[1.3 * min(low, -2e-4), 1.3 * max(high, 2e-4)]
        ),
        axis=alt.Axis(title=title, values=ticks, format="~r"),
    )
    return quality_points(tables, "loss_change", title, axis)


def reading_style(tables: Tables, rows: pl.DataFrame) -> VariantStyle:
    """One look a policy over all figures of models."""
    named = tables.cells.filter(pl.col("experiment").is_in(OF_MODELS)).select(series())
    return VariantStyle(set(named.to_series()), rows["variant"])


def kl_by_position(tables: Tables):
    rows = by_position(tables.positions, tables.cells).with_columns(
        text("kl_mean", "{:.2g}".format),
        interval("kl_mean_ci_low", "kl_mean_ci_high", "{:.2g}".format),
        pl.format("{} to {}", pl.col("position_first").cast(pl.Int64), pl.col("position_last").cast(pl.Int64)).alias("span"),
    )
    choice = length_choice(rows["seq_len"])
    style = reading_style(tables, rows)
    ends = [x for column in ("kl_mean", "kl_mean_ci_low", "kl_mean_ci_high") for x in rows[column].drop_nulls()]
    base = alt.Chart().encode(
        length_axis("position", "position in the window [tokens]", [8 << i for i in range(20) if 8 << i <= rows["position_last"].max() + 1]),
        log_axis(alt.Y, "kl_mean", "KL(full f32 cache || variant), mean [nats]", ends, "~e"),
        tooltip=tips(spec="spec", positions="span", KL="kl_mean_text", interval_95="interval"),
    )
    band = base.encode(alt.Y("kl_mean_ci_low:Q"), alt.Y2("kl_mean_ci_high:Q")).mark_area()
    band = band.encode(style.fill(), opacity=in_focus(0.13, 0.02))
    return panels(alt.layer(band, *line_and_points(base, style)), rows, choice=choice)


def recall(tables: Tables):
    rows = by_what_is_kept(with_panel(of_experiment(tables.cells, "recall", "loss", "distance")))
    rows = with_loss_interval(rows).with_columns(
        text("loss", "{:.3f}".format),
        text("held_bytes_per_token", bytes_text),
        text("kept_tokens", "{:.0f}".format),
        interval("low", "high", "{:.3f}".format),
    )
    style = reading_style(tables, rows)
    top = 1.05 * max(rows["high"].max() or 0, rows["loss"].max())
    base = alt.Chart().encode(
        length_axis("distance", "distance from the passage to its copy [tokens]", rows["distance"]),
        alt.Y(
            "loss:Q",
            axis=alt.Axis(title="loss on the second copy [nats]"),
            scale=alt.Scale(domain=[0, top], nice=False),
        ),
        tooltip=tips(
            length=False, spec="spec", distance="distance", loss="loss_text", interval_95="interval", kept="kept_tokens_text"
        ),
    )
    bar = base.encode(alt.Y("low:Q"), alt.Y2("high:Q")).mark_rule(strokeWidth=1.5)
    layers = [bar.encode(style.colour(), opacity=in_focus()), *line_and_points(base, style)]
    return panels(alt.layer(*layers), rows)


def recall_budget(tables: Tables):
    rows, full = by_budget(of_experiment(tables.cells, "recall", "loss", "distance"))
    rows = rows.with_columns(
        text("loss", "{:.3f}".format), text("kept_tokens", "{:.0f}".format), interval("low", "high", "{:.3f}".format)
    )
    style = reading_style(tables, rows)
    top = 1.05 * max(rows["high"].max() or 0, rows["loss"].max(), full["loss"].max() or 0)
    base = alt.Chart().encode(
        length_axis("kept_tokens", "tokens that the cache has left at the end", rows["kept_tokens"]),
        alt.Y(
            "loss:Q",
            axis=alt.Axis(title="loss on the second copy [nats]"),
            scale=alt.Scale(domain=[0, top], nice=False),
        ),
        tooltip=tips(length=False, spec="spec", kept="kept_tokens_text", loss="loss_text", interval_95="interval"),
    )
    bar = base.encode(alt.Y("low:Q"), alt.Y2("high:Q")).mark_rule(strokeWidth=1.5)
    floor = alt.Chart().mark_rule(color=QUIET, strokeDash=[4, 3]).encode(alt.Y("full_loss:Q"))
    line, points = line_and_points(base, style)
    layers = [floor, bar.encode(style.colour(), opacity=in_focus()), line.encode(order="kept_tokens:Q"), points]
    return panels(alt.layer(*layers), rows)


def stream(tables: Tables):
    rows = by_stretch(tables.positions, tables.cells).with_columns(
        text("perplexity", "{:.4g}".format),
        interval("low", "high", "{:.4g}".format),
        pl.format("{} to {}", pl.col("position_first").cast(pl.Int64), pl.col("position_last").cast(pl.Int64)).alias("span"),
    )
    choice = length_choice(rows["seq_len"])
    style = VariantStyle(set(rows["variant"]))
    ends = [x for column in ("perplexity", "low", "high") for x in rows[column].drop_nulls()]
    position = alt.X(
        "position:Q",
        axis=alt.Axis(title="position in the stream [tokens]", format=",d"),
        scale=alt.Scale(domain=[0, rows["position"].max()], nice=False),
    )
    base = alt.Chart().encode(
        position,
        log_axis(alt.Y, "perplexity", "perplexity of the tokens up to there", ends, "~r"),
        tooltip=tips(positions="span", perplexity="perplexity_text", interval_95="interval"),
    )
    band = base.encode(alt.Y("low:Q"), alt.Y2("high:Q")).mark_area()
    band = band.encode(style.fill(), opacity=in_focus(0.13, 0.02))
    trained = alt.Chart().mark_rule(color=QUIET, strokeDash=[4, 3]).encode(alt.X("trained_tokens:Q"))
    return panels(alt.layer(trained, band, *line_and_points(base, style)), rows, height=420, choice=choice)


TINY = "Tiny models exaggerate damage: trust the order of the variants, not the size of the gaps, and measure your own model."

FIGURES = [
    Figure(
        "memory",
        "Memory against sequence length",
        "Lower is better. Everything that the cache held at its peak: payload, metadata, slack and workspace. "
        "Parallel lines differ by a constant factor; a flat line is a cache that forgets.",
        memory,
    ),
    Figure(
        "bytes",
        "Bytes by kind",
        "Shorter is better. Payload is encoded K and V; metadata is scales, tables and scores; slack is reserved and "
        "unused; workspace is what a step needs for a moment.",
        bytes_by_kind,
        at_one_length=True,
    ),
    Figure(
        "latency",
        "Step latency against sequence length",
        "Lower is better. Median of a step with its bootstrap interval; where intervals overlap, do not call a winner.",
        latency,
    ),
    Figure(
        "growth",
        "Every step of a growth run",
        "From an empty cache, one token at a time; every dot is a step. A spike is a step that had to make "
        "room, or that the machine interrupted. Shapes only name the line. The longest run of each variant is drawn.",
        growth_steps,
    ),
    Figure(
        "growth_total",
        "What growing has cost in all",
        "Lower is better. Time spent on appending and viewing, attention left out, until the cache had this length; "
        "median of the repetitions. Twice the time for twice the length is linear, four times is quadratic.",
        growth_total,
    ),
    Figure(
        "pareto",
        "Error against memory",
        "Towards the lower left is better; the dashed line is the Pareto front, nothing measured beats it in both. "
        "Fill shows the time of a step (darker is slower), outline and shape the variant. Errors below 1e-9 are drawn there.",
        pareto,
        at_one_length=True,
    ),
    Figure(
        "bandwidth",
        "Share of the read-bandwidth ceiling",
        "Higher is better. The dotted line is the ceiling measured in the same run with the same threads; cold means "
        "that the last-level cache held none of the rows.",
        bandwidth,
    ),
    Figure(
        "kernels",
        "How near attention comes to what the machine can do, by shape",
        "Darker is nearer. Nothing attends faster than memory gives the rows (blue: that takes longer) nor than the machine does the "
        "multiply-adds (orange); the number is the share of that bound in percent. In brackets below an orange one: the share of the "
        "read ceiling alone. Ceilings and peaks are those of the same run with the same threads. Columns are tokens and "
        "threads. Hot cells are drawn where a cache holds the rows. A codec of fewer bits has less to read: the same share of the "
        "read ceiling is a shorter time.",
        kernels,
    ),
    Figure(
        "kernels_ratio",
        "Time of attention against the baseline's, by shape",
        "Smaller is faster. Median time of an attend over that of the run's first variant, side by side in the same repetitions; "
        "hot ones include the append.",
        kernels_ratio,
    ),
    Figure(
        "budget",
        "Error against bytes, over budgets",
        "Towards the lower left is better. A line is a policy over its budgets, a lone point a codec that keeps every token. "
        "Errors are means over the last tokens of a sequence; bytes are payload, metadata and slack over the tokens given. "
        "What beats another workload's winner shows which assumption a policy makes. Errors below 1e-9 are drawn there.",
        budget,
        at_one_length=True,
    ),
    Figure(
        "checkpoint",
        "Setting a sequence aside, and forking it",
        "Lower is better. Saving includes the sync to the disk, loading comes from the page cache. Where time doubles with "
        "the length it is spent on bytes; a flat line is a cache that forgets, or a fork that shares.",
        checkpoint,
    ),
    Figure(
        "prefill_workspace",
        "Prefill: workspace against prompt length",
        "Lower is better. Scratch at its peak while a prompt is stored and attended to. A line that rises four-fold with "
        "every doubling holds all scores at once, two-fold those of a chunk; a flat one holds none. Where the "
        "tiled line of a paged cache rises, it is by the list of its blocks.",
        prefill_workspace,
    ),
    Figure(
        "prefill_time",
        "Prefill: time against prompt length",
        "Lower is better. Median time of a whole prompt, storing included, with its bootstrap interval.",
        prefill_time,
    ),
    Figure(
        "batch_waste",
        "Ragged batches: what is held and not used",
        "Shorter is better; 1 is a cache that holds its rows and nothing else. Slack is what padding to the longest "
        "sequence, or the last block of each, reserves and does not use.",
        batch_waste,
    ),
    Figure(
        "quality_kl",
        "Divergence of the predictions against bytes",
        "Towards the lower left is better; the dashed line is the Pareto front. How far the next token's distribution is "
        "from the full f32 cache's on the same text, with 95 % bootstrap intervals. A line is a policy over its budgets, a lone "
        "point a codec that keeps every token.",
        quality_kl,
        at_one_length=True,
        warning=TINY,
    ),
    Figure(
        "quality_loss",
        "Loss of quality against bytes",
        "Towards the lower left is better; the dashed line is the Pareto front. Mean loss less that of the full f32 cache on the "
        "same tokens, with 95 % bootstrap intervals: one that reaches 0 says nothing. 0.01 nats are 1 % of the perplexity. The axis "
        "is linear within 0.001 nats of zero.",
        quality_loss,
        at_one_length=True,
        warning=TINY,
    ),
    Figure(
        "kl_position",
        "Divergence by position",
        "Lower is better, with 95 % bootstrap intervals. A line that rises with the position is damage that adds up; one that jumps "
        "where its tokens are used up has begun to forget. Variants that have changed nothing have no line.",
        kl_by_position,
        at_one_length=True,
        warning=TINY,
    ),
    Figure(
        "recall",
        "Recall against distance",
        "Lower is better. A passage comes again this many tokens later; only the second copy's predictions count. Who forgot the "
        "first copy has to guess; a panel's policies keep equally many tokens. Bars are the mean and 1.96 standard errors.",
        recall,
        warning=TINY,
    ),
    Figure(
        "recall_budget",
        "Recall against budget",
        "Lower is better. The same losses against the tokens that a policy has left, a panel a distance; the dashed line is the full "
        "f32 cache. A window falls to it where it reaches back over the distance and no sooner; a policy that knows what matters falls "
        "earlier. Bars are the mean and 1.96 standard errors.",
        recall_budget,
        warning=TINY,
    ),
    Figure(
        "stream",
        "Perplexity over a long stream",
        "Lower is better. Each point is the perplexity of the tokens since the point before, with 1.96 standard errors of its mean "
        "loss. The dashed line is the context that the model was trained for: a cache that keeps all meets distances there that the "
        "model never saw, and so do tokens that stay while the text moves on, unless their positions are those of the cache. "
        "Recompute reads the window anew, with no cache: what the model says to that window alone.",
        stream,
        at_one_length=True,
        warning=TINY,
    ),
]
