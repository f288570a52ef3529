"""The report page: one HTML file with the answers, the charts, the tables, the environment and the config inside.

The templates, their style and their scripts are the files of templates/.
"""

import json
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import tables
from columns import Column
from data import Run
from decision import Point, points
from details import cells_data
from figures.figure import CHAPTERS, Figure
from marks import fields_of
from markupsafe import Markup
from prepare import layers_said, title_of
from style import bytes_text
from tables import CELL, generated, predictions, replays, tiers
from templating import render
from trust import causes, trust_of


OPEN = 2  # chapters, at first


@dataclass
class Drawn:
    figure: Figure
    spec: dict | None  # Vega-Lite; None where the figure is left out
    left_out: str = ""  # the reason, where it is
    warning: str = ""  # below it

    @property
    def message(self) -> str:
        """What the chart says by itself; of one with a menu of lengths, at the longest."""
        text = self.spec.get("title", {}).get("text", "") if self.spec else ""
        if isinstance(text, dict):
            at_length = re.fullmatch(r"\((\{.*\})\)\[length\]", text["expr"])
            texts = json.loads(at_length[1]) if at_length else {}
            text = texts[max(texts, key=int)] if texts else ""
        text = " ".join(text) if isinstance(text, list) else text
        return "" if text == self.figure.title else text

    @property
    def name(self) -> str:
        """The name for screen readers: the figure's title, and its message."""
        return f"{self.figure.title}: {self.message}" if self.message else self.figure.title


@dataclass
class Chapter:
    name: str
    title: str
    figures: list[Drawn]
    tables: Mapping[str, list]  # of tables.html, by the macro that writes them
    is_open: bool


@dataclass
class Picture:
    """The one chart of the first screen."""

    drawn: Drawn
    svg: Markup
    panel: str  # the one of several that is shown

    def caption(self, points: list[Point]) -> str:
        """The chart's message, unless it is the answer above it."""
        said = "".join(points[0].sentences[:1] if points else []).replace("`", "").removesuffix(".").partition(", ")[2]
        return self.drawn.figure.title if said and said in self.drawn.message else self.drawn.message or self.drawn.figure.title


def write_page(path: Path, runs: list[Run], drawn: list[Drawn], picture: Picture | None, libraries: str) -> None:
    """Everything in one file that opens without a network; the templates escape every value from the results."""
    cells = pl.concat([run.cells for run in runs], how="diagonal_relaxed").with_row_index(CELL)
    columns = ChainMap(*(run.columns for run in runs))
    answered = points(cells, runs)
    more = {
        "quality": {"predictions": list(predictions(cells, columns)), "generated": list(generated(runs))},
        "serving": {"replays": list(replays(cells, columns))},
        "memory": {"tiers": list(tiers(cells))},
    }
    page = render(
        "report.html",
        title=", ".join(run.name for run in runs),
        runs=[(run, run_line(run), list(flatten(run.env))) for run in runs],
        counts=status_counts(cells),
        trust=trust_of(runs),
        points=answered,
        names=menu_names(answered),
        picture=picture,
        layers=layers_said(cells) if (cells["model_layers"] > cells["layers"]).any() else "",
        not_run=causes(cells.filter(pl.col("status").fill_null("") != "ok").rows(named=True), "reason"),
        disturbed=causes(cells.filter(pl.col("noise").is_not_null()).rows(named=True), "noise"),
        chapters=list(chapters(drawn, more, picture.drawn.figure.chapter if picture else "")),
        columns_drawn=lambda spec: columns_drawn(spec, columns),
        meaning=lambda *names: meaning(columns, *names),
        dictionary=sorted(set(columns.values()), key=lambda column: list(columns).index(column.name)),
        columns=vars(tables),
        cells_data=script_json(cells_data(cells, runs, columns)),
        specs=script_json({d.figure.name: d.spec for d in drawn if d.spec}),
        libraries=Markup(libraries.replace("</script", "<\\/script")),
    )
    path.write_text(page, encoding="utf-8")


def notebook(name: str, runs: list[Run]) -> str:
    """The answers of the first screen as HTML inside a notebook."""
    cells = pl.concat([run.cells for run in runs], how="diagonal_relaxed").with_row_index(CELL)
    counts = "cells: " + ", ".join(f"{count} {status}" for status, count in status_counts(cells))
    return render("notebook.html", name=name, counts=counts, trust=trust_of(runs), points=points(cells, runs))


def chapters(drawn: list[Drawn], tables: Mapping[str, Mapping[str, list]], first: str) -> Iterator[Chapter]:
    """Those with something to show, beginning with the one of this name; two are open."""
    order = sorted(CHAPTERS, key=lambda name: name != first)
    found = [(name, [d for d in drawn if d.spec and d.figure.chapter == name], tables.get(name, {})) for name in order]
    shown = [(name, figures, own) for name, figures, own in found if figures or any(own.values())]
    for at, (name, figures, own) in enumerate(shown):
        yield Chapter(name, CHAPTERS[name], figures, own, at < OPEN)


def menu_names(points: list[Point]) -> list[str]:
    """Each sweep point's title without the parts that all have: a closed menu shows only so much."""
    parts = [[*p.panel.split(" · "), p.place] for p in points]
    shared = set.intersection(*map(set, parts)) if len(points) > 1 else set()
    return [" · ".join(part for part in own if part and part not in shared) for own in parts]


def columns_drawn(spec: dict, columns: Mapping[str, Column]) -> list[str]:
    """The columns of cells.csv in a chart whose meaning is known; COLUMN_text is a column as a tooltip writes it."""
    named = {field.removesuffix("_text") for field in fields_of(spec)}
    return [name for name in sorted(named) if name in columns and columns[name].meaning]


def meaning(columns: Mapping[str, Column], *names: str) -> str:
    """A line a column; empty where no columns.json has it."""
    known = [columns[name] for name in names if name in columns and columns[name].meaning]
    return "\n".join(f"{c.name}{f' [{c.unit}]' if c.unit else ''}: {c.meaning}" for c in known)


def script_json(value) -> Markup:
    """JSON for a <script>, which no string inside can end."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def run_line(run: Run) -> str:
    """The second line of a figure's title: machine · model · config."""
    first = run.cells.row(0, named=True)
    device = nested(run.env, "device", "name")
    machine = (device if device != "cpu" else None) or nested(run.env, "cpu", "model") or "machine not recorded"
    model = nested(run.env, "model", "name") or geometry(first)
    config = nested(run.env, "config", "name") or nested(run.env, "config", "path") or run.name
    same_threads = run.cells["threads"].n_unique() == 1 and first["threads"]
    threads = f"{first['threads']:.0f} thread{'s' * (first['threads'] != 1)}" if same_threads else ""
    layers = layers_said(run.cells) if (run.cells["model_layers"] > run.cells["layers"]).any() else ""
    order = first.get("k_order") and title_of("k_order", first["k_order"])
    return " · ".join(part for part in (machine, threads, model, order, layers, f"config {config}") if part)


def geometry(cell: dict) -> str:
    counts = [
        (cell[c], name)
        for c, name in (("layers", "layers"), ("q_heads", "query heads"), ("kv_heads", "KV heads"))
    ]
    shape = [f"{count:.0f} {name}" for count, name in counts if count is not None]
    return ", ".join(shape + ([f"head dim {cell['head_dim']:.0f}"] if cell["head_dim"] else []))


def nested(env: dict, *keys: str):
    for key in keys:
        env = env.get(key) if isinstance(env, dict) else None
    return env


def flatten(value, name: str = "") -> Iterator[tuple[str, str]]:
    """{"cpu": {"cores": 2}} -> ("cpu.cores", "2"); byte counts are written in binary units."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, ", ".join(str(item) for item in value)
    elif value is not None:
        sized = name.endswith("bytes") and isinstance(value, (int, float)) and not isinstance(value, bool)
        yield name, bytes_text(value) if sized else str(value)


def status_counts(cells: pl.DataFrame) -> list[tuple[str, int]]:
    """Of each status; and of the timed those that something disturbed."""
    counts = cells["status"].fill_null("no status").value_counts(sort=True)
    timed = pl.any_horizontal(pl.col(time).is_not_null() for time in ("step_p50_us", "prefill_p50_us") if time in cells.columns)
    noisy = cells.filter(timed, pl.col("noise").is_not_null()).height
    return [*((status.replace("_", " "), count) for status, count in counts.iter_rows()), *([("noisy", noisy)] if noisy else [])]
