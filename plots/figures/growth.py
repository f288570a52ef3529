"""Growth runs: from an empty cache one token at a time, every step and what appending has cost in all."""

import altair as alt
import polars as pl
from answers import UNRELIABLE
from figures.figure import Tables, figure
from families import deciding_stage
from marks import click_focus, doublings, family_lines, in_families, in_focus, interval, line_and_points, panels, text, tips
from messages import times, titled
from known import dimensions, heading, label_of, label_text
from prepare import NoData, panel_with, with_absent, with_panel
from style import length_axis, log_axis, microseconds_text

MAX_POINTS = 2_400  # of all lines together: what a browser draws at once; the maxima always survive
FAR_ABOVE = 2  # times the median of its neighbours: a step that reallocates is so in every repetition
NEIGHBOURS = 9
RATIO = ["append_total_ratio_p50", "append_total_ratio_ci_low", "append_total_ratio_ci_high"]
MOST_SAID = 3  # variants in a title


@figure(
    "growth",
    "Time of each step of a growth run", "growth",
    "The cache starts empty and grows by a token per step. A line is the median over the repetitions, the band their range. "
    "A triangle with its length marks a step that takes at least twice as long as its neighbours in every repetition, such as "
    "one that grows the buffer; other spikes come from the machine.",
    also_common=True,
)
def growth(tables: Tables):
    rows = with_reallocations(median_steps(longest_growth(tables.growth, tables.cells)))
    message = slowest_reallocation(rows)
    rows = pl.concat([thin(rows.filter(~pl.col("reallocates")), MAX_POINTS), rows.filter("reallocates")])
    rows = rows.sort("length", maintain_order=True).with_columns(
        text("step_us", microseconds_text), interval("low_us", "high_us", microseconds_text)
    )
    style = tables.style.showing(rows["variant"])
    ends = pl.concat([rows["low_us"], rows["high_us"].clip(upper_bound=rows["step_us"].max() * 2)])
    axis = log_axis(alt.Y, "step_us", "time of one step [µs]", ends)
    rows = in_families(rows, style, "length", "step_us", axis, repeat=False).with_columns(
        tick=pl.col("length").map_elements("{:,.0f}".format, return_dtype=pl.String)
    )
    base = alt.Chart().encode(
        length_axis("length", "cache length after the step [tokens]", doublings(rows["length"])),
        axis,
        tooltip=tips(length=False, tokens="length", step="step_us_text", repetitions="interval"),
    )
    band = base.encode(alt.Y("low_us:Q"), alt.Y2("high_us:Q")).transform_filter("!datum.reference")
    band = band.mark_area(clip=True).encode(style.fill(), opacity=in_focus(0.15, 0.02))
    spikes = base.transform_filter("datum.reallocates").mark_point(shape="triangle-up", size=45, filled=True)
    spikes = spikes.encode(style.colour(), opacity=in_focus())
    lengths = spikes.mark_text(dy=-9, fontSize=9).encode(text="tick:N")
    layers = [band, *line_and_points(base, style, "length", points=False, menu=False), spikes, lengths]
    return titled(panels(alt.layer(*layers), rows), message)


@figure(
    "reallocations",
    "Steps of a growth run that take far longer than their neighbours", "growth",
    "Each line goes from the time of a step's neighbours (lower end) to the step's own (point); both are medians of the "
    "repetitions. The chart shows steps that take at least twice as long as their neighbours in every repetition, such as "
    "those that grow the buffer. The longer the line, the longer one token waits.",
)
def reallocations(tables: Tables):
    rows = with_reallocations(median_steps(longest_growth(tables.growth, tables.cells)))
    message = slowest_reallocation(rows)
    rows = rows.filter("reallocates", pl.col("around_us") > 0)
    if rows.is_empty():
        raise NoData("no step of the growth runs takes twice as long as its neighbours in every repetition")
    most = rows.group_by("variant").agg(pl.len()).sort("len", "variant", descending=[True, False])["variant"][:9]
    rows = rows.with_columns(
        text("step_us", microseconds_text), text("around_us", microseconds_text),
        times=(pl.col("step_us") / pl.col("around_us")).map_elements("{:.2g}×".format, return_dtype=pl.String),
    ).filter(pl.col("variant").is_in(most.implode()))  # fmt: skip
    rows = rows.with_columns(panel=panel_with(label_text())).sort("panel", "length")
    style = tables.style.showing(rows["variant"])
    ends = pl.concat([rows["step_us"], rows["around_us"]])
    base = alt.Chart().encode(
        length_axis("length", "cache length after the step [tokens]", rows["length"]),
        log_axis(alt.Y, "step_us", "time of one step [µs]", [ends.min(), ends.max() * 1.3]),
        style.colour(),
        opacity=in_focus(),
        tooltip=tips(length=False, tokens="length", step="step_us_text", neighbours="around_us_text", times="times"),
    )
    stems = base.encode(alt.Y("around_us:Q"), alt.Y2("step_us:Q")).mark_rule(strokeWidth=1.8)
    points = base.mark_point(size=50, filled=True).add_params(click_focus())
    ratios = base.mark_text(dy=-10, fontSize=10).encode(text="times:N").properties(name="names")
    return titled(panels(alt.layer(stems, points, ratios), rows), message)


def median_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """A row a step: its median over the repetitions with the range, and `times_around`, the least of the repetitions of
    its time over the median of its neighbours'."""
    line = ["panel", "variant", "repetition"]
    around = pl.col("step_us").rolling_median(NEIGHBOURS, center=True, min_samples=3).over(line)
    rows = rows.with_columns(around=around)
    return rows.group_by("panel", "variant", "length", maintain_order=True).agg(
        pl.col("step_us").median(),
        low_us=pl.col("step_us").min(),
        high_us=pl.col("step_us").max(),
        around_us=pl.col("around").median(),
        times_around=(pl.col("step_us") / pl.col("around")).min(),
        repetitions=pl.len(),
    )


def with_reallocations(steps: pl.DataFrame) -> pl.DataFrame:
    """Marks the steps that are far above their neighbours in each of several repetitions."""
    far = (pl.col("times_around") >= FAR_ABOVE) & (pl.col("repetitions") > 1)
    return steps.with_columns(reallocates=far & (pl.col("length") > NEIGHBOURS // 2))  # the first steps warm up


def slowest_reallocation(steps: pl.DataFrame) -> str | None:
    """Of the variants with several: a lone step in a thousand may be chance."""
    found = steps.filter(pl.col("reallocates") & (pl.col("reallocates").sum().over("panel", "variant") > 1))
    if found.is_empty():
        return None
    step = found.sort("step_us").row(-1, named=True)
    return (
        f"At {step['length']:,.0f} tokens, a step of {label_of(step['variant'])} is slow in every repetition: it takes "
        f"{microseconds_text(step['step_us'])}, its neighbours take {microseconds_text(step['around_us'])}"
    )


@figure(
    "growth_total",
    "Total time of appends in a growth run", "growth",
    "Lower is better. The time of all appends and views from an empty cache to this length, with the copies that growing "
    "makes and without attention: the median of the repetitions with its 95 % interval. Growth is linear if twice the length "
    "takes twice as long, quadratic if it takes four times as long.",
)
def growth_total(tables: Tables):
    rows = growth_totals(tables.cells).with_columns(text("append_total_us", microseconds_text))
    message = against_baseline(rows, tables.style.baseline)
    style = tables.style.showing(rows["variant"])
    ends = "append_total_ci_low_us", "append_total_ci_high_us"
    axis = log_axis(alt.Y, "append_total_us", f"{heading('append_total_us')} [µs]", pl.concat([rows[end] for end in ends]))
    tooltip = tips(summed="append_total_us_text", interval_95="interval", over_the_baseline="over")
    return titled(family_lines(rows, style, length_axis("seq_len", "cache length [tokens]", rows["seq_len"]), axis, tooltip, ends), message)


def growth_totals(cells: pl.DataFrame) -> pl.DataFrame:
    """The growth cells in panels, with `interval` and `over`, the time over the baseline's, as tooltips have them."""
    rows = cells.filter(pl.col("experiment") == "growth")
    if rows.is_empty():
        raise NoData("no growth experiment was run")
    columns = ["append_total_us", "append_total_ci_low_us", "append_total_ci_high_us"]
    if "append_total_us" not in rows.columns or rows["append_total_us"].is_null().all():
        raise NoData("cells.csv lacks append_total_us: an earlier version wrote it")
    rows = with_absent(with_panel(rows.filter(pl.col("append_total_us") > 0)), [*columns, *RATIO])
    middle = pl.col("append_total_us")
    return rows.with_columns(interval(*columns[1:], microseconds_text), pl.coalesce(columns[1], middle).alias(columns[1]),
                             pl.coalesce(columns[2], middle).alias(columns[2]), over=pl.struct(RATIO).map_elements(over, return_dtype=pl.String))  # fmt: skip


def over(ratio: dict[str, float | None]) -> str:
    value, low, high = ratio.values()
    return "–" if value is None else times(value, low, high)


def against_baseline(rows: pl.DataFrame, baseline: str | None) -> str | None:
    """At the longest length: whose appends take a time that differs from the baseline's, the longest first, and whose do not."""
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max(), pl.col("panel") == pl.col("panel").first())
    compared = longest.filter(pl.col("append_total_ratio_ci_low").is_not_null(), pl.col("verdict").ne_missing(UNRELIABLE)).sort("append_total_ratio_p50", descending=True)
    placed = compared.filter(pl.col("variant").map_elements(
        lambda name: deciding_stage(name, baseline) == "placement", return_dtype=pl.Boolean))  # fmt: skip
    compared = compared if placed.is_empty() else placed  # growing is what placements differ in
    if compared.is_empty():
        return None
    apart = (pl.col("append_total_ratio_ci_low") > 1) | (pl.col("append_total_ratio_ci_high") < 1)
    said = [f"{times(*ratio)} as long with {label_of(name)}" for name, *ratio in compared.filter(apart).head(MOST_SAID).select("variant", *RATIO).rows()]
    tied = [label_of(name) for name in compared.filter(~apart)["variant"]]
    parts = [f"take {', '.join(said)}"] * bool(said) + [f"are statistically tied with {', '.join(tied)}"] * bool(tied)
    return f"Compared with {label_of(baseline)}, all {longest['seq_len'][0]:,.0f} appends {'; they '.join(parts)}"


def longest_growth(growth: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The steps of the longest run of each variant (shorter ones are its beginnings), in panels; adds `length`, the
    rows in the cache after the step."""
    if growth.is_empty():
        was_run = (cells["experiment"] == "growth").any()
        raise NoData("growth.csv, which has every step, is not in the folder" if was_run else "no growth experiment was run")
    # `variant` comes with the cell, so that the steps of an A/A test, whose cell is not drawn, drop out with it.
    rows = growth.filter(pl.col("step_us") > 0).drop("variant").join(cells, on=["run", "cell"])
    if rows.is_empty():
        raise NoData("growth.csv has no steps of a finished cell")
    longest = rows.filter(pl.col("seq_len") == pl.col("seq_len").max().over("variant", *dimensions(rows.columns)))
    first = min(longest["token"].min(), 1)  # whether the file counts tokens from 0 or from 1
    rows = with_panel(longest).with_columns(length=pl.col("token") - first + 1)
    return rows.sort("length", maintain_order=True)  # within a length the panels keep their order


def thin(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most `most` steps: the slowest and the fastest of each stretch of a log axis, so that no spike is lost."""
    if rows.height <= most:
        return rows
    line = ["panel", "variant"]
    stretches = most / (2 * rows.n_unique(line))  # a line
    length = pl.col("length").log(2)
    keys = [*line, (length / length.max() * stretches).floor()]
    extremes = (pl.col("step_us").arg_max(), pl.col("step_us").arg_min())
    return rows.filter(pl.any_horizontal((pl.int_range(pl.len()) == end).over(keys) for end in extremes))

