"""The report page: one HTML file with the answers, the charts, the tables, the environment and the config inside.

The templates, their style and their scripts are the files of templates/.
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import tables
from answers import SEQUENCE_BYTES, Within, not_run, points
from columns import Column
from data import Run
from details import cells_data
from figures.figure import Figure
from marks import fields_of
from markupsafe import Markup
from prepare import layers_said
from style import bytes_text
from tables import CELL, generated, predictions, replays, summary, tiers
from templating import render


@dataclass
class Drawn:
    figure: Figure
    spec: dict | None  # Vega-Lite; None where the figure is left out
    left_out: str  # the reason, where it is

    @property
    def name(self) -> str:
        """The name for screen readers: the figure's title, and the message that the chart has as its own."""
        text = self.spec.get("title", {}).get("text", "") if self.spec else ""
        message = text if isinstance(text, str) else " ".join(text) if isinstance(text, list) else ""
        return self.figure.title if message in ("", self.figure.title) else f"{self.figure.title}: {message}"


def write_page(path: Path, runs: list[Run], drawn: list[Drawn], libraries: str) -> None:
    """Everything in one file that opens without a network; the templates escape every value from the results."""
    cells = pl.concat([run.cells for run in runs], how="diagonal_relaxed").with_row_index(CELL)
    columns = ChainMap(*(run.columns for run in runs))
    page = render(
        "report.html",
        title=", ".join(run.name for run in runs),
        runs=[(run, run_line(run), list(flatten(run.env))) for run in runs],
        counts=status_counts(cells),
        points=points(cells),
        not_run=not_run(cells),
        budget=budget,
        bytes_text=bytes_text,
        bytes_columns=SEQUENCE_BYTES,
        drawn=drawn,
        columns_drawn=lambda spec: columns_drawn(spec, columns),
        meaning=lambda *names: meaning(columns, *names),
        dictionary=sorted(set(columns.values()), key=lambda column: list(columns).index(column.name)),
        columns=vars(tables),
        groups=list(summary(cells, columns)),
        replays=list(replays(cells, columns)),
        predictions=list(predictions(cells, columns)),
        tiers=list(tiers(cells)),
        generated=list(generated(runs)),
        cells_data=script_json(cells_data(cells, runs, columns)),
        specs=script_json({d.figure.name: d.spec for d in drawn if d.spec}),
        libraries=Markup(libraries.replace("</script", "<\\/script")),
    )
    path.write_text(page, encoding="utf-8")


def budget(steps: list[Within]) -> str:
    """A round number of KiB in the middle, to begin with; rounded up, so that something fits."""
    middle = (steps[0].size * steps[-1].size) ** 0.5 / 1024
    digit = 10 ** math.floor(math.log10(middle))
    return f"{math.ceil(round(middle / digit, 6)) * digit:g}"


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
    machine = nested(run.env, "cpu", "model") or "machine not recorded"
    model = nested(run.env, "model", "name") or geometry(first)
    config = nested(run.env, "config", "name") or nested(run.env, "config", "path") or run.name
    same_threads = run.cells["threads"].n_unique() == 1 and first["threads"]
    threads = f"{first['threads']:.0f} thread{'s' * (first['threads'] != 1)}" if same_threads else ""
    layers = layers_said(run.cells) if (run.cells["model_layers"] > run.cells["layers"]).any() else ""
    return " · ".join(part for part in (machine, threads, model, layers, f"config {config}") if part)


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
    """Of each status; and of those that are ok and whose times something disturbed."""
    counts = cells["status"].fill_null("no status").value_counts(sort=True)
    noisy = cells.filter(pl.col("status") == "ok", pl.col("noise").is_not_null()).height
    return [*((status.replace("_", " "), count) for status, count in counts.iter_rows()), *([("noisy", noisy)] if noisy else [])]


