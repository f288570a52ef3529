"""Heat tables over shapes, lengths and threads: % of roofline, and the time of attention relative to the baseline's.

A table shows where every variant stands at every shape, which lines over length cannot.
"""

from dataclasses import dataclass

import altair as alt
import polars as pl
from answers import UNRELIABLE
from figures.figure import Tables, figure
from known import label_of
from marks import panels, scale, text, tips, variant_axis
from messages import times, titled
from prepare import NoData, with_absent
from style import length_text, microseconds_text

SHAPE = ["kv_heads", "head_dim", "threads"]
# Classes of % of roofline, from where they begin, with the colour of memory-bound and of compute-bound cells.
SHARES = {
    0.9: ("90 % and more", "#08306b", "#7f2704"),
    0.7: ("70–90 %", "#2171b5", "#d94801"),
    0.5: ("50–70 %", "#6baed6", "#fd8d3c"),
    0.3: ("30–50 %", "#bdd7e7", "#fdbe85"),
    0.0: ("below 30 %", "#eff3ff", "#feedde"),
}
# Classes of a variant's time over the baseline's, from where they begin; blue is faster.
TIMES = {
    1.25: ("1.25 and more", "#d94801"),
    1.03: ("1.03–1.25", "#fdbe85"),
    0.97: ("0.97–1.03", "#e6e9ee"),
    0.8: ("0.8–0.97", "#bdd7e7"),
    0.55: ("0.55–0.8", "#6baed6"),
    0.0: ("below 0.55", "#2171b5"),
}
# Times the cold read bandwidth: hot cells below it were not cache-resident, repeat the cold ones, and are not drawn.
CACHE_RESIDENT = 1.3
# Folders of earlier versions lack these.
ROOFLINE_NUMBERS = """
    multiply_add_peak_per_s bound_us bound_share cold_bound_us cold_bound_share err_kernel_rel_l2 attend_p50_us
    cold_ci_low_us cold_ci_high_us cold_ratio_p50 cold_ratio_ci_low cold_ratio_ci_high
""".split()


@figure(
    "kernels",
    "% of roofline, by shape", "time",
    "Darker is nearer to the roofline, the least time that the machine allows: reading K and V at the measured bandwidth "
    "(memory-bound, blue) or the multiply-adds at their measured peak (compute-bound, orange), whichever takes longer. The "
    "number is % of roofline, in brackets % of read bandwidth. Columns are tokens and threads. Hot cells are shown where "
    "K and V fit the CPU's cache.",
)
def kernels(tables: Tables):
    return roofline_table(tables.cells, tables.style.names)


@figure(
    "kernels_ratio",
    "Time of attention relative to the baseline's, by shape", "time",
    "Smaller is faster. The median time of attention divided by that of the run's first variant, interleaved in the same "
    "repetitions; hot times include the append.",
)
def kernels_ratio(tables: Tables):
    return time_table(tables.cells, tables.style.names)


def roofline_table(cells: pl.DataFrame, names: list[str]) -> alt.TopLevelMixin:
    """% of roofline; where that is compute, % of measured read bandwidth in brackets."""
    rows = hot_and_cold(cells)
    share = pl.coalesce("bound_share", "ceiling_share")  # folders of earlier versions have no roofline
    bound = pl.col("bound").fill_null("memory")
    percent = lambda of: (100 * of).round().cast(pl.Int64)  # noqa: E731
    rows = rows.with_columns(
        share=share,
        label=percent(share).cast(pl.String),
        small=pl.when(bound == "compute")
        .then(pl.format("({})", percent(pl.col("ceiling_share"))))
        .otherwise(pl.lit("")),
        low=pl.col("ceiling_share") * pl.col("us") / pl.col("high_us"),
        high=pl.col("ceiling_share") * pl.col("us") / pl.col("low_us"),
    )
    kinds = {"memory": 1, "compute": 2} if "compute" in set(rows["bound"]) else {"memory": 1}
    classes = {f"{kind} · {entry[0]}": entry[column] for kind, column in kinds.items() for entry in SHARES.values()}
    drawn = pl.format("{} · {}", bound, class_of(percent(share) / 100, SHARES))  # the class of what is written
    written = [text(column, "{:.1%}".format) for column in ("share", "ceiling_share", "low", "high")]
    written += [text(column, "{:.3g} GB/s".format) for column in ("read_gbps", "ceiling_gbps")]
    written += [text("multiply_add_peak_per_s", lambda x: f"{x * 1e-9:.3g} G/s")]
    written += [text("err_kernel_rel_l2", "{:.1e}".format)]
    written += [text(column, microseconds_text) for column in ("us", "bound_us")]
    tooltip = tips(
        limited_by="bound", of_roofline="share_text", of_read_bandwidth="ceiling_share_text", low="low_text",
        high="high_text", time="us_text", roofline_time="bound_us_text", read="read_gbps_text",
        measured_read_bandwidth="ceiling_gbps_text", multiply_add_peak="multiply_add_peak_per_s_text",
        kernel_error="err_kernel_rel_l2_text",
    )  # fmt: skip
    style = HeatStyle("limited by · % of roofline", classes, len(SHARES), tooltip)
    return titled(heat_table(rows.with_columns(*written, kind=drawn), names, style), near_the_roofline(rows))


def near_the_roofline(rows: pl.DataFrame) -> str:
    """How many cells reach the two darkest classes, and which is the farthest from its roofline."""
    near = rows.filter(pl.col("share") >= 0.7).height
    least = rows.sort("share", "variant").row(0, named=True)
    return (f"{near} of {rows.height} cells reach 70 % of their roofline; {label_of(least['variant'])} reaches the least, "
            f"{100 * least['share']:.0f} % ({least['panel']}, {least['column']})")  # fmt: skip


def time_table(cells: pl.DataFrame, names: list[str]) -> alt.TopLevelMixin:
    """Times over those of the baseline."""
    rows = hot_and_cold(cells).filter(pl.col("ratio").is_not_null())
    if rows.is_empty():
        raise NoData("no variant's cold reads were compared with a baseline's")
    ratio = pl.col("ratio")
    rows = rows.with_columns(
        label=ratio.map_elements("{:.2f}".format, return_dtype=pl.String),
        small=pl.lit(""),
        kind=class_of(ratio.round(2), TIMES),
    )
    classes = dict(TIMES.values())
    baselines = rows["versus"].unique()
    legend = f"attention / {label_of(baselines[0]) if len(baselines) == 1 else 'baseline'}"
    written = [text(column, "{:.3f}".format) for column in ("ratio", "ratio_low", "ratio_high")]
    tooltip = tips(versus="versus", ratio="ratio_text", low="ratio_low_text", high="ratio_high_text", time="us_text")
    style = HeatStyle(legend, classes, len(TIMES), tooltip)
    drawn = heat_table(rows.with_columns(*written, text("us", microseconds_text)), names, style)
    return titled(drawn, fastest_and_slowest(rows.filter(pl.col("ratio_low").is_not_null(), pl.col("variant") != pl.col("versus"), pl.col("verdict").ne_missing(UNRELIABLE))))


def fastest_and_slowest(rows: pl.DataFrame) -> str | None:
    """The smallest and the largest ratio whose interval does not contain 1."""
    apart = rows.filter((pl.col("ratio_low") > 1) | (pl.col("ratio_high") < 1)).sort("ratio", "variant")
    if apart.is_empty():
        return "All variants are statistically tied with the baseline" if rows.height else None
    said = [f"{times(row['ratio'])} as long ({label_of(row['variant'])}, {row['panel']}, {row['column']})"
            for row in (apart.row(0, named=True), apart.row(-1, named=True))]  # fmt: skip
    return f"Compared with the baseline, attention takes from {said[0]} to {said[1]}"


def hot_and_cold(cells: pl.DataFrame) -> pl.DataFrame:
    """A row a cell and temperature, in the order of panels and columns."""
    cells = with_absent(cells, ["cold_ceiling_share", *ROOFLINE_NUMBERS], ["bound", "cold_bound"])
    cells = cells.filter(pl.col("cold_ceiling_share").is_not_null() & (pl.col("seq_len") > 0))
    if cells.select(SHAPE).n_unique() < 2:
        raise NoData("only one shape and number of threads was measured")
    hot = at_temperature(cells, "hot", "", "attend_p50_us")
    hot = hot.filter(pl.col("ceiling_gbps") >= CACHE_RESIDENT * pl.col("cold_ceiling_gbps"))
    cold = at_temperature(cells, "cold", "cold_", "cold_attend_p50_us")
    order = ["temperature", *SHAPE[:2], "seq_len", "threads"]
    return pl.concat([hot, cold]).sort(order, descending=[False, True, False, False, False])


def at_temperature(cells: pl.DataFrame, temperature: str, prefix: str, us: str) -> pl.DataFrame:
    """The columns of one temperature, under the names of the hot ones."""
    columns = ["ceiling_gbps", "ceiling_share", "read_gbps", "bound", "bound_us", "bound_share"]
    tokens = pl.col("seq_len").map_elements(length_text, return_dtype=pl.String)
    heads = (pl.col(name).cast(pl.Int64) for name in ("q_heads", *SHAPE[:2]))
    unknown = pl.lit(None, pl.Float64)  # intervals of hot attends: those of steps have appends in them
    return cells.select(
        "variant", "seq_len", *SHAPE, "versus", "verdict", "multiply_add_peak_per_s", "err_kernel_rel_l2", "cold_ceiling_gbps",
        *(pl.col(prefix + column).alias(column) for column in columns),
        us=pl.col(us),
        low_us=pl.col("cold_ci_low_us") if prefix else unknown,
        high_us=pl.col("cold_ci_high_us") if prefix else unknown,
        ratio=pl.col(f"{prefix}ratio_p50"),
        ratio_low=pl.col(f"{prefix}ratio_ci_low"),
        ratio_high=pl.col(f"{prefix}ratio_ci_high"),
        temperature=pl.lit(temperature),
        column=pl.format("{} · {}t", tokens, pl.col("threads").cast(pl.Int64)),
        panel=pl.format("{}/{} heads of {} · {}", *heads, pl.lit(temperature)),
    )  # fmt: skip


def class_of(value: pl.Expr, classes: dict) -> pl.Expr:
    """The name of the class that begins at or below the value; `classes` go from the highest to 0."""
    chosen = pl.lit(None, pl.String)
    for edge, (name, *_) in reversed(classes.items()):
        chosen = pl.when(value >= edge).then(pl.lit(name)).otherwise(chosen)
    return chosen


@dataclass
class HeatStyle:
    legend: str
    classes: dict[str, str]  # colours
    columns: int  # of the legend
    tooltip: list[alt.Tooltip]


def heat_table(rows: pl.DataFrame, names: list[str], style: HeatStyle):
    """`label`, and `small` below it, in cells coloured by `kind`; a panel a shape and temperature."""
    variants = [name for name in names if name in set(rows["variant"])]
    dark = [name for name, colour in style.classes.items() if is_dark(colour)]
    base = alt.Chart().encode(
        alt.X("column:O", sort=None, axis=alt.Axis(title=None, labelAngle=-60, labelFontSize=10)),
        variant_axis(variants, longest=44),
        tooltip=style.tooltip,
    )
    legend = alt.Legend(title=style.legend, orient="top", columns=style.columns)
    colour = alt.Color("kind:N", scale=scale(style.classes), legend=legend)
    cells = base.mark_rect(stroke="white").encode(colour)
    ink = alt.condition(alt.FieldOneOfPredicate("kind", dark), alt.value("white"), alt.value("black"))
    number = base.mark_text(fontSize=10, dy=alt.expr("datum.small ? -5 : 0")).encode(text="label:N", color=ink)
    below = base.mark_text(fontSize=8, dy=6).encode(text="small:N", color=ink)
    height = (26 if rows["small"].str.len_chars().max() else 20) * len(variants)
    return panels(alt.layer(cells, number, below), rows, height, apart="x")


def is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 130
