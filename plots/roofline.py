"""Heat tables over shapes, lengths and threads: how near kernels come to the bound that holds, and their times side by side.

A table shows where every variant stands at every shape, which lines over length cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import polars as pl
from marks import panels, scale, text, tips
from prepare import NoData
from style import length_text, microseconds_text

SHAPE = ["kv_heads", "head_dim", "threads"]
# A class of shares, up to the next one's edge, and its colour under each bound: the nearer, the darker.
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
IN_A_CACHE = 1.3  # times the cold ceiling: hot cells whose ceiling is lower are cold ones again, and are not drawn


def bound_table(cells: pl.DataFrame, names: list[str]) -> alt.TopLevelMixin:
    """Shares of the bound that holds; where that is compute, the share of the read ceiling in brackets."""
    rows = hot_and_cold(cells)
    share = pl.coalesce("bound_share", "ceiling_share")  # folders of earlier versions have no bound
    bound = pl.col("bound").fill_null("memory")
    percent = lambda of: (100 * of).round().cast(pl.Int64)  # noqa: E731
    rows = rows.with_columns(
        share=share,
        label=percent(share).cast(pl.String),
        small=pl.when(bound == "compute").then(pl.format("({})", percent(pl.col("ceiling_share")))).otherwise(pl.lit("")),
        low=pl.col("ceiling_share") * pl.col("us") / pl.col("high_us"),
        high=pl.col("ceiling_share") * pl.col("us") / pl.col("low_us"),
    )
    kinds = {"memory": 1, "compute": 2} if "compute" in set(rows["bound"]) else {"memory": 1}
    classes = {f"{kind} · {entry[0]}": entry[column] for kind, column in kinds.items() for entry in SHARES.values()}
    drawn = pl.format("{} · {}", bound, class_of(percent(share) / 100, SHARES))  # the class of what is written
    written = [text(column, "{:.1%}".format) for column in ("share", "ceiling_share", "low", "high")]
    written += [text(column, "{:.3g} GB/s".format) for column in ("read_gbps", "ceiling_gbps")]
    written += [text("multiply_add_peak_per_s", lambda x: f"{x * 1e-9:.3g} G/s"), text("err_kernel_rel_l2", "{:.1e}".format)]
    written += [text(column, microseconds_text) for column in ("us", "bound_us")]
    tooltip = tips(
        bound="bound", share_of_it="share_text", of_read_ceiling="ceiling_share_text", low="low_text", high="high_text",
        time="us_text", bound_time="bound_us_text", read="read_gbps_text", ceiling="ceiling_gbps_text",
        multiply_add_peak="multiply_add_peak_per_s_text", kernel_error="err_kernel_rel_l2_text",
    )  # fmt: skip
    return heat_table(rows.with_columns(*written, kind=drawn), names, Look("bound · share of it", classes, len(SHARES), tooltip))


def time_table(cells: pl.DataFrame, names: list[str]) -> alt.TopLevelMixin:
    """Times over those of the baseline."""
    rows = hot_and_cold(cells).filter(pl.col("ratio").is_not_null())
    if rows.is_empty():
        raise NoData("no variant's cold reads were compared with a baseline's")
    ratio = pl.col("ratio")
    rows = rows.with_columns(
        label=ratio.map_elements("{:.2f}".format, return_dtype=pl.String), small=pl.lit(""), kind=class_of(ratio.round(2), TIMES)
    )
    classes = dict(TIMES.values())
    baselines = rows["versus"].unique()
    legend = f"time / {baselines[0]}'s" if len(baselines) == 1 else "time / baseline's"
    written = [text(column, "{:.3f}".format) for column in ("ratio", "ratio_low", "ratio_high")]
    tooltip = tips(versus="versus", ratio="ratio_text", low="ratio_low_text", high="ratio_high_text", time="us_text")
    return heat_table(
        rows.with_columns(*written, text("us", microseconds_text)), names, Look(legend, classes, len(TIMES), tooltip)
    )


def hot_and_cold(cells: pl.DataFrame) -> pl.DataFrame:
    """A row a cell and temperature, in the order of panels and columns."""
    if "cold_ceiling_share" not in cells.columns:
        raise NoData("no cell has cold_ceiling_share")
    cells = cells.filter(pl.col("cold_ceiling_share").is_not_null() & (pl.col("seq_len") > 0))
    if cells.select(SHAPE).n_unique() < 2:
        raise NoData("only one shape and number of threads was measured")
    hot = side(cells, "hot", "", "attend_p50_us")
    hot = hot.filter(pl.col("ceiling_gbps") >= IN_A_CACHE * pl.col("cold_ceiling_gbps"))
    cold = side(cells, "cold", "cold_", "cold_attend_p50_us")
    order = ["temperature", *SHAPE[:2], "seq_len", "threads"]
    return pl.concat([hot, cold]).sort(order, descending=[False, True, False, False, False])


def side(cells: pl.DataFrame, temperature: str, prefix: str, us: str) -> pl.DataFrame:
    """The columns of one temperature, under the names of the hot ones."""
    columns = ["ceiling_gbps", "ceiling_share", "read_gbps", "bound", "bound_us", "bound_share"]
    tokens = pl.col("seq_len").map_elements(length_text, return_dtype=pl.String)
    heads = (pl.col(name).cast(pl.Int64) for name in ("q_heads", *SHAPE[:2]))
    unknown = pl.lit(None, pl.Float64)  # intervals of hot attends: those of steps have appends in them
    return cells.select(
        "variant", "seq_len", *SHAPE, "versus", "multiply_add_peak_per_s", "err_kernel_rel_l2", "cold_ceiling_gbps",
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
class Look:
    legend: str
    classes: dict[str, str]  # colours
    columns: int  # of the legend
    tooltip: list[alt.Tooltip]


def heat_table(rows: pl.DataFrame, names: list[str], look: Look):
    """`label`, and `small` below it, in cells coloured by `kind`; a panel a shape and temperature."""
    variants = [name for name in names if name in set(rows["variant"])]
    dark = [name for name, colour in look.classes.items() if is_dark(colour)]
    base = alt.Chart().encode(
        alt.X("column:O", sort=None, axis=alt.Axis(title=None, labelAngle=-60, labelFontSize=10)),
        alt.Y("variant:N", sort=variants, axis=alt.Axis(title=None, labelFontSize=11, labelLimit=260)),
        tooltip=look.tooltip,
    )
    legend = alt.Legend(title=look.legend, orient="top", columns=look.columns)
    colour = alt.Color("kind:N", scale=scale(look.classes), legend=legend)
    cells = base.mark_rect(stroke="white").encode(colour)
    ink = alt.condition(alt.FieldOneOfPredicate("kind", dark), alt.value("white"), alt.value("black"))
    number = base.mark_text(fontSize=10, dy=alt.expr("datum.small ? -5 : 0")).encode(text="label:N", color=ink)
    below = base.mark_text(fontSize=8, dy=6).encode(text="small:N", color=ink)
    height = (26 if rows["small"].str.len_chars().max() else 20) * len(variants)
    kept = rows.select("variant", "seq_len", "panel", "column", "kind", "label", "small", *fields_of(look.tooltip, rows))
    table = panels(alt.layer(cells, number, below), kept, height=height)
    return table.resolve_scale(x="independent") if rows["panel"].n_unique() > 1 else table


def fields_of(tooltip: list[alt.Tooltip], rows: pl.DataFrame) -> list[str]:
    fields = [tip.shorthand for tip in tooltip]
    return [field for field in fields if field in rows.columns and field not in ("variant", "seq_len")]


def is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.3 * red + 0.6 * green + 0.1 * blue < 130
