"""What the figures share: lines with points, tooltips, the click in the legend, small multiples."""

from __future__ import annotations

import re
from collections.abc import Callable

import altair as alt
import polars as pl
from style import VariantStyle, length_text


def text(column: str, write: Callable) -> pl.Expr:
    """The column as it reads in a tooltip: `{column}_text`."""
    written = pl.col(column).map_elements(write, return_dtype=pl.String, skip_nulls=True)
    return written.fill_null("–").alias(column + "_text")


def interval(low: str, high: str, write: Callable) -> pl.Expr:
    ends = (pl.col(end).map_elements(write, return_dtype=pl.String) for end in (low, high))
    return pl.concat_str(ends, separator=" to ").fill_null("–").alias("interval")


def tips(length: bool = True, **fields: str) -> list[alt.Tooltip]:
    shown = {"variant": "variant", **({"tokens": "seq_len"} if length else {}), **fields}
    return [
        alt.Tooltip(field, type="quantitative" if field in ("seq_len", "length") else "nominal", title=title)
        for title, field in ((name.replace("_", " "), field) for name, field in shown.items())
    ]


def in_focus(on: float = 1, off: float = 0.06):
    """Opacity that follows the click in the legend, the selection that one layer adds with `legend_focus`."""
    return alt.condition(alt.selection_point(name="focus"), alt.value(on), alt.value(off))


def legend_focus(field: str = "variant") -> alt.Parameter:
    """A click in the legend keeps what has the same `field`. Belongs to a layer that shows the field in its legend."""
    return alt.selection_point(name="focus", fields=[field], bind="legend")


def line_and_points(base: alt.Chart, style: VariantStyle) -> list[alt.Chart]:
    """The layers of a figure with a line a variant; `base` holds the axes and the tooltip."""
    line = base.mark_line(strokeWidth=1.8).encode(style.colour(), style.dash(), opacity=in_focus())
    # Hollow, so that equal values show through one another.
    points = base.mark_point(size=65, strokeWidth=1.8)
    return [line.add_params(legend_focus()), points.encode(style.colour(), style.shape(), opacity=in_focus())]


def scale(colours: dict[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def length_choice(lengths: pl.Series) -> alt.Parameter:
    """`length`, a menu of the lengths with the longest chosen; a constant where there is only one."""
    options = sorted(set(lengths))
    if len(options) == 1:
        return alt.param(name="length", value=options[0])
    labels = [length_text(length) for length in options]
    menu = alt.binding_select(options=options, labels=labels, name="sequence length ")
    return alt.param(name="length", value=options[-1], bind=menu)


def panels(chart, rows: pl.DataFrame, height=None, choice: alt.Parameter | None = None):
    """Small multiples over the panels of `rows`, or one large chart where there is one.

    With `choice` only the rows of the length that it holds are drawn.
    """
    titles = list(dict.fromkeys(rows["panel"]))
    data = alt.Data(values=rows.to_dicts())
    if choice:
        chart = chart.transform_filter("datum.seq_len == length")
    columns = 1 if len(titles) == 1 else 2 if len(titles) in (2, 4) else 3
    if columns == 1:
        beside_legend = max(380, 17 * rows["variant"].n_unique())
        drawn = chart.properties(width=680, height=height or beside_legend, data=data)
    else:
        sized = chart.properties(width={2: 400, 3: 300}[columns], height=height or 280)
        drawn = sized.facet(alt.Facet("panel:N", sort=titles, title=None), data=data, columns=columns)
    return drawn.add_params(choice) if choice else drawn


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
