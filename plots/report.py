"""Draws the charts of one or more results folders: report.html, and each figure as SVG and PNG.

Reads only the result files (cells.csv, growth.csv, claims.csv, env.json, config.toml) and needs no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import polars as pl
import vl_convert
from claims import BadClaims, is_reproduction, write_claims
from data import BadResults, Run, load_runs
from figures import FIGURES, Figure, Tables
from page import Drawn, run_line, write_page
from prepare import OF_MODELS, NoData, measured
from style import CONFIG, VariantStyle

VEGALITE = "6.1"  # what Altair 6.0 writes
PNG_PIXELS_PER_POINT = 2


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("results", nargs="+", type=Path, help="a results folder, one that holds cells.csv or claims.csv")
    arguments.add_argument(
        "--out", type=Path, help="one report of all the folders here, rather than one in each"
    )
    options = arguments.parse_args()
    if options.out and len(options.results) > 1 and any(map(is_reproduction, options.results)):
        print("error: claims have a report of their own; give --out one folder of claims, or runs alone", file=sys.stderr)
        return 2
    try:
        for folder in filter(is_reproduction, options.results):
            print(write_claims(folder, options.out or folder))
        measured_in = [folder for folder in options.results if not is_reproduction(folder)]
        runs = load_runs(measured_in)
        reports = [(runs, options.out)] if options.out and runs else [([run], run.folder) for run in runs]
        for together, out in reports:
            print(write_report(together, out))
    except (BadClaims, BadResults) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: cannot be written ({error.strerror})", file=sys.stderr)
        return 2
    return 0


def write_report(runs: list[Run], out: Path) -> Path:
    """Writes report.html and figures/ into `out` and returns the page's path."""
    cells = pl.concat([run.cells for run in runs])
    tables = Tables(
        measured(cells),
        pl.concat([run.growth for run in runs]),
        pl.concat([run.positions for run in runs]),
        VariantStyle(set(measured(cells).filter(~pl.col("experiment").is_in(["budget", *OF_MODELS]))["variant"])),
    )
    named = len(runs) > 1
    subtitle = [f"{run.name}: {run_line(run)}" if named else run_line(run) for run in runs]
    pictures = out / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = []
    for figure in FIGURES:
        try:
            spec = specification(figure, tables, subtitle)
        except NoData as reason:
            print(f"{figure.name}: left out, {reason}")
            drawn.append(Drawn(figure, None, str(reason)))
            continue
        svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)
        (pictures / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
        png = vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=PNG_PIXELS_PER_POINT)
        (pictures / f"{figure.name}.png").write_bytes(png)
        drawn.append(Drawn(figure, spec, ""))
    return write_page(out / "report.html", runs, drawn, vl_convert.javascript_bundle(vl_version=VEGALITE))


def specification(figure: Figure, tables: Tables, subtitle: list[str]) -> dict:
    """The figure as Vega-Lite JSON, titled with what was measured where."""
    chart = figure.draw(tables)
    spec = chart.to_dict()
    title: str | dict = figure.title
    if figure.at_one_length:
        title = {"expr": f"'{figure.title} at ' + format(length, ',') + ' tokens'"}
    spec["title"] = {"text": title, "subtitle": [*subtitle, figure.warning] if figure.warning else subtitle}
    spec["config"] = CONFIG
    return spec


if __name__ == "__main__":
    sys.exit(main())
