"""The details that a row of a table opens and copies: the cell's columns, its samples as histograms, the command that repeats it."""

import json
import math
import shlex
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from columns import Column
from data import Run, read_if_there
from known import AXES, spec_of
from tables import CELL

PROJECT = Path(__file__).resolve().parents[1]
SAMPLE_COLUMNS = "cell kind step_us".split()
BINS = 30
# Axes of which an experiment has one in place of seq_len.
LENGTHS = ("lengths", "distance")


def cells_data(cells: pl.DataFrame, runs: list[Run], columns: Mapping[str, Column]) -> dict:
    """Every cell in the order of its index, without the columns that nothing measured."""
    shown = [name for name in cells.columns if name != CELL and cells[name].null_count() < cells.height]
    described = [columns.get(name) or Column(name) for name in shown]
    rows = [[tidy(value) for value in row] for row in cells.select(shown).iter_rows()]
    return {
        "columns": [{"name": name, "unit": c.unit, "meaning": c.meaning} for name, c in zip(shown, described)],
        "rows": rows,
        "commands": commands(cells, runs),
        "samples": samples(cells, runs),
    }


def tidy(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value


def commands(cells: pl.DataFrame, runs: list[Run]) -> list[str]:
    folders = {run.name: run.folder for run in runs}
    varying = {}
    for key, rows in cells.group_by("run", "experiment"):
        varying[key] = {name for name in AXES if name in rows.columns and rows[name].drop_nulls().n_unique() > 1}
    return [
        command(row, folders[row["run"]], varying[row["run"], row["experiment"]]) for row in cells.iter_rows(named=True)
    ]


def command(row: Mapping, folder: Path, varying: set[str]) -> str:
    """The command for one cell and the one that it is compared with."""
    experiment = row["experiment"]
    length = next((name for name in LENGTHS if row.get(name) is not None), "seq_len")
    compared = [row["versus"]] if row.get("versus") and not row.get("arm") else []
    variants = [v for v in dict.fromkeys([*compared, row["variant"]]) if spec_of(v).is_cache]
    settings: dict[str, list] = {"variants": variants} if variants else {}
    for name, axis in AXES.items():
        is_swept = name == length or (name in varying and name not in (*LENGTHS, "seq_len"))
        if axis.key and row.get(name) is not None and is_swept and not (name == "batch" and row.get("lengths")):
            settings[axis.key] = [tidy(row[name])]
    written = [f"experiment={experiment}", *(f"{experiment}.{key}={toml(value)}" for key, value in settings.items())]
    sets = " ".join(f"--set {shlex.quote(setting)}" for setting in written)
    return f"./kvlab run {shlex.quote(str(from_project(folder) / 'config.toml'))} {sets}"


def toml(values: list) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def from_project(folder: Path) -> Path:
    """./kvlab stands in the project's folder."""
    folder = folder.resolve()
    return folder.relative_to(PROJECT) if PROJECT in folder.parents else folder


def samples(cells: pl.DataFrame, runs: list[Run]) -> dict[int, list[dict]]:
    """A histogram a cell and kind of sample, where the folder still has its samples."""
    index = {(run, cell): number for number, run, cell in cells.select(CELL, "run", "cell").iter_rows()}
    found: dict[int, list[dict]] = defaultdict(list)
    for run in runs:
        read = read_if_there(run.folder / "samples.csv", SAMPLE_COLUMNS)
        if run.host:
            read = read.filter(pl.col("host") == run.host)
        for (cell, kind), rows in read.group_by("cell", "kind", maintain_order=True):
            times = rows["step_us"].drop_nulls()
            if (run.name, cell) in index and not times.is_empty():
                found[index[run.name, cell]].append({"kind": kind, **histogram(times)})
    return found


def histogram(times: pl.Series) -> dict:
    """Counts in bins of equal width on a log axis: spikes are many times the median."""
    low, high = max(times.min(), 1e-3), max(times.max(), 1e-3)
    width = math.log(high / low) / BINS or 1
    counts = [0] * BINS
    for time in times:
        counts[min(int(math.log(max(time, low) / low) / width), BINS - 1)] += 1
    return {"low": low, "median": times.median(), "high": high, "counts": counts}
