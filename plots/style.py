"""How everything looks: colours, shapes, axes, units. No data and no figures here."""

import math
import re

import altair as alt

# Okabe and Ito's colour-blind-safe set without yellow, which is too faint on white.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9"]
# Families' colours; ink is the baseline's. A family has shades of one of six hues, and a few of eight shapes.
HUES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
SHAPES = "circle square triangle-up diamond cross triangle-down triangle-right triangle-left".split()
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]]
# Kinds of bytes: from dark to light, so that they keep their order in grey.
KINDS = {
    "payload": "#26364d",
    "metadata": "#5b7ba6",
    "workspace peak": "#d9935a",
    "slack": "#dfe5ec",
}

INK, QUIET, GRID = "#1c2330", "#5d6673", "#e6e9ee"
FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"

CONFIG = {
    "font": FONT,
    "background": "white",
    "padding": 14,
    "view": {"stroke": GRID},
    "title": {
        "anchor": "start", "fontSize": 16, "fontWeight": 600, "color": INK,
        "subtitleFontSize": 12, "subtitleColor": QUIET, "subtitlePadding": 5, "offset": 14,
    },
    "axis": {
        "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": QUIET,
        "titleColor": INK, "gridColor": GRID, "domainColor": "#aab1bc", "tickColor": "#aab1bc",
        "titlePadding": 8, "labelLimit": 400,
    },
    "header": {"labelFontSize": 12, "labelFontWeight": 600, "labelColor": INK, "titleFontSize": 0, "labelLimit": 420},
    "legend": {
        "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": 600, "titleColor": INK, "labelColor": INK,
        "labelLimit": 430, "symbolLimit": 0, "symbolSize": 70, "rowPadding": 3, "titleLimit": 280, "offset": 18,
    },
}  # fmt: skip


def shades(colour: str, count: int) -> list[str]:
    """`count` shades of a colour, from darker to lighter; the colour itself where there is one."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    steps = [0.0] if count == 1 else [-0.45 + 0.7 * at / (count - 1) for at in range(count)]
    towards = lambda part, step: part * (1 + step) if step < 0 else part + (255 - part) * step  # noqa: E731
    return ["#" + "".join(f"{round(towards(part, step)):02x}" for part in (red, green, blue)) for step in steps]


def natural_order(names) -> list[str]:
    """Sorted so that block=16 follows block=4."""
    return sorted(names, key=lambda name: [int(p[:4000]) if p.isdecimal() else p for p in re.split(r"(\d+)", name)])


def bytes_text(value: float | None) -> str:
    """1536 -> '1.5 KiB'."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def microseconds_text(value: float | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} µs"


def binary_unit(largest: float) -> tuple[str, int]:
    """The unit, and its bytes, in which `largest` reads best on a linear axis."""
    power = min(3, int(math.log2(max(largest, 1)) // 10))
    return ("B", "KiB", "MiB", "GiB")[power], 1024**power


def length_text(tokens: float) -> str:
    """131072 -> '128K', as the axes print it."""
    for size, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens >= size and tokens % size == 0:
            return f"{tokens / size:.0f}{suffix}"
    return f"{tokens:.0f}"


LENGTH_LABEL = (
    "datum.value >= 1048576 && datum.value % 1048576 == 0 ? datum.value / 1048576 + 'M' : "
    "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'K' : datum.value"
)
_BYTES_LABEL = (
    "datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : "
    "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : "
    "datum.value >= 1024 ? datum.value / 1024 + ' KiB' : datum.value + ' B'"
)


def length_axis(field: str, title: str, lengths) -> alt.X:
    """A log2 axis with a tick at every length that was run; beyond ten, at the powers of two; beyond that, thinned."""
    ticks = sorted(set(lengths))
    if len(ticks) > 10:
        low, high = (math.log2(max(edge, 1)) for edge in (ticks[0], ticks[-1]))
        step = max(1, round((high - low) / 10))
        ticks = [2**power for power in range(math.ceil(low), math.floor(high) + 1, step)]
    low, high = max(min(lengths), 1), max(lengths)
    margin = 1.08 if high > low else 2
    return alt.X(
        field,
        type="quantitative",
        scale=alt.Scale(type="log", base=2, nice=False, domain=[low / margin, high * margin]),
        axis=alt.Axis(title=title, values=ticks, labelExpr=LENGTH_LABEL, labelOverlap=True),
    )


def bytes_axis(field: str, title: str, values) -> alt.Y:
    """A log2 axis between the powers of two that enclose the values, labelled in binary units."""
    low = math.floor(math.log2(max(min(values), 1)))
    high = max(math.ceil(math.log2(max(max(values), 1))), low + 1)
    step = 1 + (high - low) // 9
    return alt.Y(
        field,
        type="quantitative",
        scale=alt.Scale(type="log", base=2, nice=False, domain=[2**low, 2**high]),
        axis=alt.Axis(title=title, values=[2**p for p in range(low, high + 1, step)], labelExpr=_BYTES_LABEL),
    )


def log_axis(channel, field: str, title: str, values, label_format=",~r"):
    """A log10 axis between round numbers; its ticks are decades, or 1-2-5 where the values span few decades."""
    positive = [value for value in values if value > 0]
    low, high = min(positive), max(positive)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    grid = [m * 10.0**d for d in decades for m in (1, 2, 5)]
    bottom, top = max(t for t in grid if t <= low * 1.0001), min(t for t in grid if t >= high * 0.9999)
    if bottom == top:
        top = min(t for t in grid if t > bottom)
    few = math.log10(top / bottom) < 2.5
    inside = [t for t in (grid if few else grid[::3]) if bottom <= t <= top]
    return channel(
        field,
        type="quantitative",
        scale=alt.Scale(type="log", nice=False, domain=[bottom, top]),
        axis=alt.Axis(title=title, values=inside[:: 1 + len(inside) // 10], format=label_format),
    )
