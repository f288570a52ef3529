"""Time, memory and growth against the one numeric parameter over which a run sweeps, such as the block of `paged`."""

import altair as alt
import polars as pl
from families import VariantStyle, swept_parameter
from figures.figure import Tables, figure
from figures.growth import growth_totals
from figures.memory import peak_said
from known import heading, label_of
from marks import in_families, interval, interval_bars, length_choice, line_and_points, panels, text, tips
from messages import at_each_length, titled
from prepare import NoData, drawable, with_panel
from style import QUIET, bytes_axis, bytes_text, length_axis, log_axis, microseconds_text

HOW = (
    "The variants differ in one number, such as the block of paged(block=8) and paged(block=64); a line joins those that "
    "differ in nothing else. The dotted line is the baseline."
)


WHAT = {"step_p50_us": "A step takes", "bytes_peak": "Memory goes", "append_total_us": "All appends take"}


@figure("parameter_time", "Step latency against a parameter of the variants", "time",
        f"Lower is better. {HOW} Bars are 95 % intervals.", at_one_length=True)  # fmt: skip
def parameter_time(tables: Tables):
    rows = drawable(tables.common, "step_p50_us", "seq_len").with_columns(
        text("step_p50_us", microseconds_text), interval("step_ci_low_us", "step_ci_high_us", microseconds_text)
    )
    ends = pl.concat([rows[end] for end in ("step_p50_us", "step_ci_low_us", "step_ci_high_us")]).drop_nulls()
    axis = log_axis(alt.Y, "step_p50_us", f"{heading('step_p50_us')} [µs]", ends)
    return against_parameter(
        with_panel(rows), tables.style.baseline, axis, "step_p50_us", ("step_ci_low_us", "step_ci_high_us")
    )


@figure("parameter_memory", "Memory against a parameter of the variants", "memory", f"Lower is better. {HOW}", at_one_length=True)
def parameter_memory(tables: Tables):
    rows = drawable(tables.common, "bytes_peak", "seq_len")
    rows = with_panel(rows).with_columns(text("bytes_peak", bytes_text), interval=pl.lit("–"))
    axis = bytes_axis("bytes_peak", peak_said(rows), rows["bytes_peak"])
    return against_parameter(rows, tables.style.baseline, axis, "bytes_peak")


@figure("parameter_growth", "Total time of appends in a growth run against a parameter of the variants", "growth",
        f"Lower is better. The time of append and view, without attention, until the cache was full, as the median of the repetitions. {HOW} "
        "Bars are 95 % intervals.", at_one_length=True)  # fmt: skip
def parameter_growth(tables: Tables):
    rows = growth_totals(tables.cells).with_columns(text("append_total_us", microseconds_text))
    ends = "append_total_ci_low_us", "append_total_ci_high_us"
    axis = log_axis(alt.Y, "append_total_us", f"{heading('append_total_us')} [µs]", pl.concat([rows[end] for end in ends]))
    return against_parameter(rows, tables.style.baseline, axis, "append_total_us", ends)


def against_parameter(
    rows: pl.DataFrame, baseline: str | None, axis: alt.Y, value: str, ends: tuple[str, str] | None = None
):
    parameter = swept_parameter(set(rows["variant"]))
    if parameter is None:
        raise NoData("the variants do not differ in a single number that has three values or more")
    base_rows = rows.filter(pl.col("variant") == (baseline or ""), ~pl.col("variant").is_in(list(parameter.values)))
    beside = base_rows.select("panel", "seq_len", baseline_value=value).unique(["panel", "seq_len"])
    rows = rows.filter(pl.col("variant").is_in(list(parameter.values))).with_columns(
        parameter=pl.col("variant").replace_strict(parameter.values, default=None, return_dtype=pl.Float64),
        spec=pl.col("variant"),
        variant=pl.col("variant").replace_strict(parameter.lines, default=None),
    )
    if rows["parameter"].min() <= 0:
        raise NoData(f"{parameter.name} is not above 0 everywhere, which a log axis needs")
    rows = rows.join(beside, on=["panel", "seq_len"], how="left", maintain_order="left")
    choice, style = length_choice(rows["seq_len"]), VariantStyle(set(rows["variant"]))
    message = at_each_length(rows, lambda at: best_value(at, value, parameter.name))
    rows = pl.concat(
        in_families(at, style, "parameter", value, axis) for at in rows.partition_by("seq_len", maintain_order=True)
    )
    base = alt.Chart().encode(
        length_axis("parameter", parameter.name, rows["parameter"]),
        axis,
        tooltip=tips(spec="spec", value=f"{value}_text", interval_95="interval"),
    )
    level = alt.Chart().mark_rule(color=QUIET, strokeDash=[2, 2]).encode(alt.Y("baseline_value:Q"))
    layers = [] if beside.is_empty() else [level]
    if ends:
        layers.append(interval_bars(base.transform_filter("!datum.reference"), style, *ends))
    layers += line_and_points(base, style, "parameter")
    return titled(panels(alt.layer(*layers), rows, choice=choice), message)


def best_value(rows: pl.DataFrame, value: str, name: str) -> str:
    """Where the least of the values is, and where the largest."""
    rows = rows.sort(value)
    least, most = rows.row(0, named=True), rows.row(-1, named=True)
    return (
        f"{WHAT[value]} from {least[value + '_text']} ({label_of(least['spec'])}) to {most[value + '_text']} ({label_of(most['spec'])}), "
        f"depending on {name},"
    )
