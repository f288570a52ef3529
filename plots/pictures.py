"""The pictures of a figure: SVG, PNG and PDF, as on the page, or as wide as a paper's column with its font size."""

import copy
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import vl_convert
from columns import BadResults
from vega import VEGALITE

PNG_PIXELS_PER_POINT = 2
POINTS_PER_PIXEL = 0.75  # CSS points, the unit of a PDF
FORMATS = ("pdf", "png", "svg")
PIXELS = {"mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96, "pt": 96 / 72, "px": 1}
FONT_SIZES = ("fontSize", "labelFontSize", "titleFontSize", "subtitleFontSize")
PANEL = 230  # pixels: the least that a panel with the names of its lines takes of a column
LEAST = 40  # pixels: a panel's axis


@dataclass(frozen=True)
class Pictures:
    """The files that are written of each figure; lengths in CSS pixels, of which an inch has 96."""

    formats: tuple[str, ...] = ("svg", "png")
    width: float | None = None
    font: float | None = None


def formats(text: str) -> tuple[str, ...]:
    """--figures, as in 'pdf,svg'. Throws BadResults."""
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(FORMATS):
        raise BadResults(f"--figures {text}: unknown format; give {', '.join(FORMATS)} or several, as in pdf,svg")
    return names


def pixels(option: str, text: str | None) -> float | None:
    """An option such as '84mm' in CSS pixels. Throws BadResults."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(mm|cm|in|pt|px)", text)
    if not found or float(found[1]) == 0:
        raise BadResults(f"{option} {text}: give a length with a unit ({', '.join(PIXELS)}), as in 84mm or 8pt")
    return float(found[1]) * PIXELS[found[2]]


def write_pictures(spec: dict, folder: Path, name: str, pictures: Pictures) -> None:
    svg = for_paper(spec, pictures) if pictures.width or pictures.font else to_svg(spec)
    if "svg" in pictures.formats:
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    if "png" in pictures.formats:
        (folder / f"{name}.png").write_bytes(vl_convert.svg_to_png(svg, scale=PNG_PIXELS_PER_POINT))
    if "pdf" in pictures.formats:
        (folder / f"{name}.pdf").write_bytes(vl_convert.svg_to_pdf(in_points(svg)))


def in_points(svg: str) -> str:
    """Scales to as many points as it had pixels of 1/96 inch: the conversion to PDF takes one for the other."""
    size = re.compile(r'\b(width|height)="([\d.]+)"')
    return size.sub(lambda found: f'{found[1]}="{float(found[2]) * POINTS_PER_PIXEL:.6g}"', svg, count=2)


def to_svg(spec: dict) -> str:
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)


def for_paper(spec: dict, pictures: Pictures) -> str:
    """SVG in a column's width and font size, without the title: a paper's caption says it."""
    spec = {key: value if key == "data" else copy.deepcopy(value) for key, value in spec.items() if key != "title"}
    spec["config"]["padding"] = 2
    if pictures.font:
        set_sizes({key: value for key, value in spec.items() if key != "data"}, pictures.font)
    if not pictures.width:
        return to_svg(spec)
    limit_labels({key: value for key, value in spec.items() if key != "data"}, pictures.width)
    spec["config"]["legend"] |= {"orient": "bottom", "columns": max(1, int(pictures.width // 120))}
    inner = spec.get("spec", spec)
    columns = 1
    if "spec" in spec:
        columns = spec["columns"] = max(1, min(spec.get("columns", 1), int(pictures.width // PANEL)))
    inner["width"] = pictures.width / columns / 2
    for _ in range(6):  # what stands beside the axes depends on their width, so that the first guesses may be off
        svg = to_svg(spec)
        spare = pictures.width - float(re.search(r'width="([\d.]+)"', svg)[1])
        if abs(spare) < 1 or inner["width"] + spare / columns < LEAST:
            break
        inner["width"] += spare / columns
    return to_svg(spec)


def one_panel(spec: dict, wanted: str) -> tuple[str, str]:
    """SVG of a figure's panel, without what goes with all: title and legend; and the panel's title, "" of a lone one. Of several
    it is the fullest whose title begins as wanted."""
    spec = {key: value if key in ("data", "config") else without_legends(value) for key, value in spec.items() if key != "title"}
    config = {**spec["config"], "padding": {"left": 4, "top": 4, "bottom": 4, "right": 26}, "legend": {"disable": True}}  # other fonts are wider
    if "facet" not in spec:
        return to_svg({**spec, "config": config}), ""
    titles = [title for title in spec["facet"]["sort"] if title.startswith(wanted)] or spec["facet"]["sort"]
    own = Counter(row["panel"] for row in spec["data"]["values"] if not row.get("reference"))
    title = max(titles, key=lambda title: own[title])
    rows = [row for row in spec["data"]["values"] if row["panel"] == title]
    params = [*spec.get("params", ()), *spec["spec"].get("params", ())]
    return to_svg({**spec["spec"], "data": {"values": rows}, "config": config, "params": params}), title


def without_legends(part):
    if isinstance(part, dict):
        return {key: None if key == "legend" else without_legends(value) for key, value in part.items()}
    return [without_legends(value) for value in part] if isinstance(part, list) else part


def set_sizes(part, size: float) -> None:
    """Every font size of a specification, but those of 0, which hide a text."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in FONT_SIZES and value:
                part[key] = size
            set_sizes(value, size)
        if "mark" in part and isinstance(part["mark"], dict) and part["mark"].get("type") == "text":
            part["mark"]["fontSize"] = size
    elif isinstance(part, list):
        for value in part:
            set_sizes(value, size)


def limit_labels(part, width: float) -> None:
    """No label and no name takes more than two fifths of the width."""
    if isinstance(part, dict):
        if part.get("type") == "text":
            part["limit"] = 0.4 * width
        for key, value in part.items():
            if key in ("labelLimit", "titleLimit"):
                part[key] = min(value or width, 0.4 * width)  # 0 is no limit
            limit_labels(value, width)
    elif isinstance(part, list):
        for value in part:
            limit_labels(value, width)
