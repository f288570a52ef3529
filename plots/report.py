"""Draws the charts of one or more results folders: report.html, and each figure as SVG and PNG.

Reads only the files of a results folder (cells.csv, columns.json, growth.csv, …) and needs no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import altair as alt
import polars as pl
import vl_convert
from claims import BadClaims, is_reproduction, write_claims
from data import BadResults, Run, load_runs
from figures.figure import Figure, Tables
from figures.list import FIGURES
from marks import fields_of
from page import Drawn, run_line, write_page
from prepare import MODEL_EXPERIMENTS, NoData, measured
from style import CONFIG, VariantStyle

VEGALITE = "6.1"  # what Altair 6.0 writes
PNG_PIXELS_PER_POINT = 2


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument(
        "results", nargs="+", type=Path, help="a results folder, one that holds cells.csv or claims.csv"
    )
    arguments.add_argument(
        "--out", type=Path, help="one report of all the folders here, rather than one in each"
    )
    options = arguments.parse_args()
    sys.stdout.reconfigure(errors="surrogateescape")  # a path is printed as it is, and may be no UTF-8
    if options.out and len(options.results) > 1 and any(map(is_reproduction, options.results)):
        complaint = "claims have a report of their own; give --out one folder of claims, or runs alone"
        print(f"error: {complaint}", file=sys.stderr)
        return 2
    try:
        for folder in filter(is_reproduction, options.results):
            print(write_claims(folder, options.out or folder))
        measured_in = [folder for folder in options.results if not is_reproduction(folder)]
        runs = load_runs(measured_in)
        reports = [(runs, options.out)] if options.out and runs else [([run], run.folder) for run in runs]
        for together, out in reports:
            write_report(together, out)
    except (BadClaims, BadResults) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    return 0


def write_report(runs: list[Run], out: Path) -> None:
    """Writes report.html and figures/ into `out`, and says so."""
    tables = tables_of(runs)
    named = len(runs) > 1
    subtitle = [f"{run.name}: {run_line(run)}" if named else run_line(run) for run in runs]
    pictures = out / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = [draw(figure, tables, subtitle, pictures) for figure in FIGURES]
    page = write_page(out / "report.html", runs, drawn, vl_convert.javascript_bundle(vl_version=VEGALITE))
    print(page)
    left_out = sum(figure.spec is None for figure in drawn)
    if left_out:
        print(f"{left_out} of {len(drawn)} figures left out: the report lists them with the reasons")


def tables_of(runs: list[Run]) -> Tables:
    cells = measured(pl.concat([run.cells for run in runs], how="diagonal_relaxed"))
    in_common_figures = cells.filter(~pl.col("experiment").is_in(["budget", *MODEL_EXPERIMENTS]))
    return Tables(
        cells,
        pl.concat([run.growth for run in runs], how="diagonal_relaxed"),
        pl.concat([run.positions for run in runs], how="diagonal_relaxed"),
        pl.concat([run.heads for run in runs], how="diagonal_relaxed"),
        VariantStyle(set(in_common_figures["variant"])),
    )


def draw(figure: Figure, tables: Tables, subtitle: list[str], pictures: Path) -> Drawn:
    """Writes the figure as SVG and PNG, unless there is nothing to draw."""
    try:
        spec = specification(figure, tables, subtitle)
    except NoData as reason:
        return Drawn(figure, None, str(reason))
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)
    (pictures / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
    png = vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=PNG_PIXELS_PER_POINT)
    (pictures / f"{figure.name}.png").write_bytes(png)
    return Drawn(figure, spec, "")


def specification(figure: Figure, tables: Tables, subtitle: list[str]) -> dict:
    """The figure as Vega-Lite JSON, titled with what was measured where. Throws NoData."""
    alt.data_transformers.consolidate_datasets = False  # rows stay where the chart has its data
    try:
        spec = figure.draw(tables).to_dict()
    except pl.exceptions.ColumnNotFoundError as error:  # an older folder, or one of a later version that renamed it
        raise NoData(str(error).partition(";")[0]) from None
    title: str | dict = figure.title
    if figure.at_one_length:
        title = {"expr": f"'{figure.title} at ' + format(length, ',') + ' tokens'"}
    spec["title"] = {"text": title, "subtitle": [*subtitle, figure.warning] if figure.warning else subtitle}
    spec["config"] = CONFIG
    spec["data"]["values"] = only_fields_used(spec)
    return spec


def only_fields_used(spec: dict) -> list[dict]:
    """The rows of the data without the columns that the chart never names: they are most of a cell's."""
    used = fields_of(spec)
    return [{name: value for name, value in row.items() if name in used} for row in spec["data"]["values"]]


if __name__ == "__main__":
    sys.exit(main())
