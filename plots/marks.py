"""Parts of several figures: lines with points, tooltips, the click in the legend, small multiples."""

import json
import re
import textwrap
from collections.abc import Callable, Iterable
from contextlib import contextmanager

import altair as alt
import polars as pl
from families import VariantStyle, labelled
from known import label_of
from labels import CHARACTER, LONGEST, with_end_labels
from prepare import AMBIGUOUS, ON_FRONT, panel_with
from style import INK, QUIET, length_text

NAME_LIMIT = CHARACTER * LONGEST  # pixels, for a name at the end of a line
NARROW_NAME = 26  # characters, in a small place
PAGE = 1090  # pixels, that the panels of a row and their names share
_narrow: list[int] = []  # pixels of a lone panel with its names, while a figure is drawn for a small place


@contextmanager
def narrow(width: int):
    """Figures that are drawn inside have panels of this many pixels, with the names at the ends of their lines."""
    _narrow.append(width)
    try:
        yield
    finally:
        _narrow.pop()


def text(column: str, write: Callable) -> pl.Expr:
    """The column as it reads in a tooltip: `{column}_text`."""
    written = pl.col(column).map_elements(write, return_dtype=pl.String, skip_nulls=True)
    return written.fill_null("–").alias(column + "_text")


def interval(low: str, high: str, write: Callable) -> pl.Expr:
    ends = (pl.col(end).map_elements(write, return_dtype=pl.String) for end in (low, high))
    return pl.concat_str(ends, separator=" to ").fill_null("–").alias("interval")


def tips(length: bool = True, **fields: str) -> list[alt.Tooltip]:
    shown = {"variant": "variant_text", "spec": "variant", **({"tokens": "seq_len"} if length else {}), **fields}
    return [
        alt.Tooltip(field, type="quantitative" if field in ("seq_len", "length") else "nominal", title=title)
        for title, field in ((name.replace("_", " "), field) for name, field in shown.items())
    ]


def in_focus(on: float = 1, off: float = 0.06) -> alt.OpacityValue:
    """Opacity that follows the click in the legend, the selection that one layer adds with `legend_focus`. As a channel, since
    Altair takes a tenth of a report's time to find out what a bare condition is."""
    return alt.OpacityValue(off, condition={"param": "focus", "value": on})


def legend_focus(field: str = "variant") -> alt.Parameter:
    """A click in the legend keeps what has the same `field`. Belongs to a layer that shows the field in its legend."""
    return alt.selection_point(name="focus", fields=[field], bind="legend")


def click_focus() -> alt.Parameter:
    """A click on a mark or on a name keeps its variant, in every panel; one beside the marks shows all again."""
    return alt.selection_point(name="focus", fields=["variant"], on="click", clear="view:click[!event.item || !event.item.datum]")


def in_families(rows: pl.DataFrame, style: VariantStyle, x: str, y: str, axis: alt.Y, height: float = 0,
                repeat: bool = True) -> pl.DataFrame:  # fmt: skip
    """The rows in panels of few families. Every panel also has the rows of all other variants, as `reference`: drawn is
    the one that the menu chooses, from the start the baseline. Without `repeat`, where there are too many rows, panels
    have those of the baseline alone. Lines get names at their ends."""
    groups = style.groups()
    split = len(groups) > 1
    found = []
    panels_before = list(dict.fromkeys(rows["panel"]))
    for title, members in groups.items():
        own = rows.with_columns(reference=~pl.col("variant").is_in(members))
        own = own if repeat else own.filter(~pl.col("reference") | (pl.col("variant") == (style.baseline or "")))
        with_own = (~pl.col("reference")).any().over("panel")
        own = own.with_columns(before="panel")
        found.append(own.filter(with_own).with_columns(panel=panel_with(pl.lit(title), last=True)) if split else own)
    order = pl.col("before").replace_strict(panels_before, list(range(len(panels_before))), return_dtype=pl.Int64)
    drawn = pl.concat(found).sort(order, maintain_order=True)
    labelled = ~pl.col("reference") | (pl.col("variant") == (style.baseline or ""))
    drawn = drawn.with_columns(style.short(), labelled=labelled)
    return with_end_labels(drawn, x, y, axis, height or panel_height(drawn))


def line_and_points(
    base: alt.Chart, style: VariantStyle, x: str, points: bool = True, menu: bool = True
) -> list[alt.Chart]:
    """The layers of a figure with a line a variant, named at its end; `base` holds the axes and the tooltip, and the rows
    come from `in_families`."""
    own = base.transform_filter("!datum.reference")
    line = own.mark_line(strokeWidth=1.8).encode(style.colour(), style.dash(), opacity=in_focus())
    # Hollow, so that equal values show through one another.
    shapes = own.mark_point(size=50, strokeWidth=1.8).encode(style.colour(), style.shape(), opacity=in_focus())
    named = alt.Chart().encode(alt.X(f"{x}:Q"), alt.Y("label_at:Q"), text="label:N", tooltip=[alt.Tooltip("variant_text:N", title="variant")])
    named = named.mark_text(align="left", dx=9, fontSize=11, cursor="pointer")
    names = named.transform_filter("!datum.reference").encode(style.colour(), opacity=in_focus()).properties(name="names")
    layers = [line.add_params(click_focus()), *([shapes] if points else []), names]
    if len(style.groups()) == 1:
        return layers
    beside = base.transform_filter("datum.reference && datum.variant == beside")
    reference = beside.mark_line(strokeWidth=1.6, strokeDash=[2, 2], color=QUIET).encode(detail="variant:N")
    called = named.transform_filter("datum.reference && datum.variant == beside").encode(color=alt.value(INK))
    return [reference.add_params(beside_menu(style, menu)), *layers, called]


def family_lines(
    rows: pl.DataFrame, style: VariantStyle, x: alt.X, y: alt.Y, tooltip: list[alt.Tooltip], bars: tuple[str, str] | None = None,
    band: tuple[str, str, float] | None = None, under=lambda own: [], over=lambda own: [], height: int = 0, choice: alt.Parameter | None = None,
):  # fmt: skip
    """A line a variant, in panels of few families. `bars` and `band` are the columns of an interval's ends, that of a band with its opacity; `under`
    and `over` make more layers from a chart of a panel's own rows."""
    across, up = (axis.shorthand.removesuffix(":Q") for axis in (x, y))
    rows = in_families(rows, style, across, up, y, height)
    base = alt.Chart().encode(x, y, tooltip=tooltip)
    own = base.transform_filter("!datum.reference")
    layers = under(own)
    if band:
        layers.append(between(own, *band[:2]).mark_area().encode(style.fill(), opacity=in_focus(band[2], 0.02)))
    if bars:
        layers.append(interval_bars(own, style, *bars))
    return panels(alt.layer(*layers, *line_and_points(base, style, across), *over(own)), rows, height, choice)


def between(base: alt.Chart, low: str, high: str) -> alt.Chart:
    return base.encode(alt.Y(f"{low}:Q"), alt.Y2(f"{high}:Q"))


def interval_bars(base: alt.Chart, style: VariantStyle, low: str, high: str) -> alt.Chart:
    """The layer of the intervals, each in its variant's colour."""
    return between(base, low, high).mark_rule(strokeWidth=1.5).encode(style.colour(), opacity=in_focus())


def variant_axis(names: Iterable[str], sort=None, field: str = "variant", longest: int = 56, grid: bool = True) -> alt.Y:
    """A row a variant, in the order of the names unless `sort` says another; a label of more characters has its middle left out."""
    names = list(names)
    sort = names if sort is None else sort
    written = labelled(names, NARROW_NAME, "left") if _narrow else labelled(names, longest)
    axis = alt.Axis(title=None, labelFontSize=11, labelLimit=0, labelExpr=written, grid=grid)
    return alt.Y(f"{field}:N", sort=sort, axis=axis)


def dots_and_whiskers(base: alt.Chart, whiskers: alt.Chart, names: alt.Y, at: float, verdict: str) -> alt.LayerChart:
    """A row a name with its dot and its interval on both sides of a line at `at`, and what is `beside` it on the right; a click in the legend keeps
    those of a verdict."""
    line = alt.Chart().mark_rule(color=INK).encode(x=alt.datum(at))
    written = alt.Chart().encode(names, text="beside:N").mark_text(align="left", dx=8, fontSize=11, color=QUIET).encode(x=alt.value("width"))
    return alt.layer(whiskers.add_params(legend_focus(verdict)), line, base.mark_point(size=60, filled=True, opacity=1), written)


def stacked_bars(base: alt.Chart, x: alt.X, kind: str, colours: dict[str, str], title: str = "") -> alt.Chart:
    """A bar a variant of parts in the order of `order`, each in its kind's colour; `base` holds the variants' axis and the tooltip."""
    bars = base.mark_bar(stroke=QUIET, strokeWidth=0.5).encode(
        x,
        alt.Color(f"{kind}:N", scale=scale(colours), legend=alt.Legend(title=title or kind)),
        alt.Order("order:Q"),
        opacity=in_focus(),
    )
    return bars.add_params(legend_focus(kind))


def point_names(base: alt.Chart) -> alt.Chart:
    """The layer of the names that `with_point_labels` placed; `base` holds the axes."""
    expressions = {key: alt.expr(f"datum.label_{key}") for key in ("dx", "dy", "align")}
    names = base.mark_text(fontSize=10.5, baseline="middle", color=INK, cursor="pointer", **expressions)
    names = names.encode(text="label:N", tooltip=[alt.Tooltip("variant_text:N", title="variant")], opacity=in_focus()).properties(name="names")
    return names.transform_filter("datum.label")


def front_line(base: alt.Chart) -> alt.Chart:
    """The layer of the Pareto front, a staircase from the smallest point on; rows come from `with_front`."""
    line = base.transform_filter("datum.front").mark_line(interpolate="step-after", color=QUIET, strokeDash=[4, 3], strokeWidth=1.3)
    return line.encode(order="per_token:Q")


def front_dots(base: alt.Chart) -> alt.Chart:
    """The layer that says which points lie on the Pareto front, and which might; rows come from `with_front`."""
    kinds = scale({ON_FRONT: INK, AMBIGUOUS: "#E69F00"})
    dots = base.transform_filter("datum.may_be").mark_circle(size=14, opacity=1)
    return dots.encode(alt.Fill("place:N", scale=kinds, legend=alt.Legend(title=None, orient="top")))


def lines_over_budgets(base: alt.Chart, bar: alt.Chart, rows: pl.DataFrame, style: VariantStyle, size: int) -> alt.LayerChart:
    """A line a policy over its budgets, a lone point a cache without any, and the front of them all; `base` holds the axes and the tooltip, `bar` the
    ends of the intervals."""
    legend = style.legend_of(rows)
    line = base.mark_line(strokeWidth=1.8).encode(style.colour(legend), style.dash(), opacity=in_focus(), order="per_token:Q")
    points = base.mark_point(size=size, strokeWidth=1.8).encode(style.colour(legend), style.shape(legend), opacity=in_focus())
    bars = bar.mark_rule(strokeWidth=1.5).encode(style.colour(legend), opacity=in_focus())
    return alt.layer(front_line(base), bars, line, points.add_params(click_focus()), front_dots(base), point_names(base))


def beside_menu(style: VariantStyle, menu: bool) -> alt.Parameter:
    """`beside`, a menu of all variants, for the line that every panel repeats; from the start it is the baseline."""
    chosen = style.baseline if style.baseline in style.names else style.names[0]
    if not menu:  # the panels lack the rows of the others
        return alt.param(name="beside", value=chosen)
    select = alt.binding_select(options=style.names, labels=[label_of(name) for name in style.names], name="compare in every panel with (dotted) ")
    return alt.param(name="beside", value=chosen, bind=select)


def scale(colours: dict[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def length_choice(lengths: pl.Series, chosen: int | None = None) -> alt.Parameter:
    """`length`, a menu of the lengths with the longest chosen, or `chosen`; a constant where there is only one."""
    options = sorted(set(lengths))
    if len(options) == 1:
        return alt.param(name="length", value=options[0])
    labels = [length_text(length) for length in options]
    menu = alt.binding_select(options=options, labels=labels, name="sequence length ")
    return alt.param(name="length", value=options[-1] if chosen is None else chosen, bind=menu)


def panel_columns(count: int) -> int:
    return 1 if count == 1 else 2 if count in (2, 4) else 3


def panel_height(rows: pl.DataFrame) -> int:
    return 380 if rows["panel"].n_unique() == 1 else 250


def panel_width(rows: pl.DataFrame) -> int:
    """Such that the panels of a row, with the names at the ends of their lines, fit into the page."""
    columns = panel_columns(rows["panel"].n_unique())
    named = rows["label"].str.len_chars().max() or 0 if "label_at" in rows.columns else 0
    names = min(NAME_LIMIT, CHARACTER * named)
    if _narrow:
        return int(_narrow[-1] - names)
    return min({1: 680, 2: 400, 3: 300}[columns], int(PAGE / columns - names))


def panels(chart, rows: pl.DataFrame, height=None, choice: alt.Parameter | None = None, apart: str = ""):
    """Small multiples over the panels of `rows`, or one large chart where there is one.

    With `choice` only the rows of the length that it holds are drawn. Panels have axes of their own in the channels of `apart`.
    """
    titles = list(dict.fromkeys(rows["panel"]))
    if choice:
        chart = chart.transform_filter("datum.seq_len == length")
    sized = {"width": panel_width(rows), "height": height or panel_height(rows)}
    if len(titles) == 1:
        drawn = chart.properties(**sized, data=rows)
    else:
        facet = alt.Facet("panel:N", sort=titles, title=None, header=panel_titles(titles, sized["width"]))
        drawn = chart.properties(**sized).facet(facet, data=rows, columns=panel_columns(len(titles)))
        drawn = drawn.resolve_scale(**dict.fromkeys(apart, "independent")) if apart else drawn
    return drawn.add_params(choice) if choice else drawn


def panel_titles(titles: list[str], width: int) -> alt.Header:
    """Those that are longer than a panel is wide in lines, which break between their parts."""
    most = int(width / 6.4)
    wrapped = {title: textwrap.wrap(title, most, break_long_words=False, break_on_hyphens=False) for title in titles if len(title) > most}
    return alt.Header(labelLimit=0, labelExpr=f"({json.dumps(wrapped, ensure_ascii=False)})[datum.label] || datum.label") if wrapped else alt.Header(labelLimit=0)


def fields_of(chart) -> set[str]:
    """The columns of the data that a Vega-Lite specification, or a part of one, names."""
    if isinstance(chart, dict):
        named = {chart["field"]} if isinstance(chart.get("field"), str) else set(chart.get("fields", ()))
        return named.union(*(fields_of(part) for key, part in chart.items() if key != "data"))
    if isinstance(chart, list):
        return set().union(*map(fields_of, chart))
    return set(re.findall(r"datum\.(\w+)", chart)) if isinstance(chart, str) else set()


def doublings(lengths: pl.Series) -> list[int]:
    longest = int(lengths.max())
    return [1 << power for power in range(longest.bit_length()) if 1 << power <= longest] + [longest]


def room_below(values: pl.Series) -> list[float]:
    """The extremes of an axis that leaves space for labels below and left of the smallest value."""
    return [values.min() / 2, values.max()]
