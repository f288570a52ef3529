"""Draws the charts of one or more results folders: report.html, and each figure as SVG and PNG.

Reads only the files of a results folder (cells.csv, columns.json, growth.csv, …) and needs no network.
"""

import argparse
import sys
from pathlib import Path

import altair as alt
import polars as pl
from altair.utils import schemapi
from beside import Arguments, beside, exit_code, given_folder
from claims import is_reproduction, write_claims
from data import BadResults, Run, load_runs
from families import VariantStyle, baseline_of
from figures.figure import Figure, Tables
from figures.list import FIGURES, main_figure
from known import label_text
from marks import fields_of, narrow
from markupsafe import Markup
from page import Drawn, Picture, run_line, write_page
from pictures import Pictures, formats, one_panel, pixels, write_pictures
from prepare import NoData, measured, with_panel
from style import CONFIG
from vega import javascript

BESIDE = 340  # pixels: the panel of the first screen's picture

def main(words: list[str] | None = None) -> int:
    arguments = Arguments(prog="kvlab plot", description=__doc__.splitlines()[0])
    arguments.add_argument(
        "results", nargs="+", type=Path, help="a results folder, which has cells.csv or claims.csv"
    )
    arguments.add_argument(
        "--out", type=given_folder, help="one report of all the folders here, rather than one in each"
    )
    arguments.add_argument("--figures", default="svg,png", metavar="pdf,svg,png", help="which pictures are written")
    arguments.add_argument(
        "--figure-width", metavar="84mm", help="pictures as wide as a paper's column, and without titles"
    )
    arguments.add_argument("--figure-font", metavar="8pt", help="the size of all text in the pictures")
    arguments.add_argument("--why-not", metavar="FIGURE", help="say why a report lacks a figure, as in --why-not growth, and draw nothing")
    return exit_code(lambda: plot(arguments.parse_args(words)))


def plot(options: argparse.Namespace) -> None:
    """Writes all reports that were asked for, and says so. Throws BadResults and OSError."""
    if options.why_not:
        return print(why_not(options.why_not, tables_of(load_runs(options.results))))
    if options.out and len(options.results) > 1 and any(map(is_reproduction, options.results)):
        raise BadResults("--out: a folder of claims has its own report; give it alone, or give runs alone")
    pictures = Pictures(
        formats(options.figures),
        pixels("--figure-width", options.figure_width),
        pixels("--figure-font", options.figure_font),
    )
    for folder in filter(is_reproduction, options.results):
        out = options.out or folder
        with beside(out, "report.html") as unfinished:
            page = write_claims(folder, unfinished)
        print(out / page.name)
    measured_in = [folder for folder in options.results if not is_reproduction(folder)]
    runs = load_runs(measured_in)
    folders = list(dict.fromkeys(run.folder for run in runs))  # a merged one holds a run a host
    each = [([run for run in runs if run.folder == folder], folder) for folder in folders]
    reports = [(runs, options.out)] if options.out and runs else each
    for together, out in reports:
        write_report(together, out, pictures)


def write_report(runs: list[Run], out: Path, how: Pictures) -> None:
    """Writes report.html and figures/ into `out`, and says so."""
    tables = tables_of(runs)
    named = len(runs) > 1
    subtitle = [f"{run.name}: {run_line(run)}" if named else run_line(run) for run in runs]
    with beside(out, "report.html") as unfinished:
        pictures = unfinished / "figures"
        pictures.mkdir()
        drawn = [draw(figure, tables, subtitle, pictures, how) for figure in FIGURES]
        write_page(unfinished / "report.html", runs, drawn, main_picture(drawn, tables, subtitle), javascript())
    print(out / "report.html")


def why_not(name: str, tables: Tables) -> str:
    """Why a report of these runs has no such figure. Throws BadResults."""
    figure = next((figure for figure in FIGURES if figure.name == name), None)
    if figure is None:
        raise BadResults(f"--why-not {name}: unknown figure; known: {', '.join(figure.name for figure in FIGURES)}")
    try:
        specification(figure, tables, [])
    except NoData as reason:
        return f"{name}: not drawn, {reason}"
    return f"{name}: drawn, chapter {figure.chapter}"


def tables_of(runs: list[Run]) -> Tables:
    cells = measured(pl.concat([run.cells for run in runs], how="diagonal_relaxed"))
    of = lambda figures: pl.col("experiment").is_in({name for figure in figures for name in figure.experiments})  # noqa: E731
    common = cells.filter(~of(FIGURES))
    if common.is_empty():
        common = cells.filter(of(figure for figure in FIGURES if figure.also_common))
    styled = cells.filter(~of(figure for figure in FIGURES if figure.own_style))
    return Tables(
        cells,
        common,
        *(pl.concat([getattr(run, table) for run in runs], how="diagonal_relaxed") for table in ("growth", "positions", "heads", "moments", "hits")),
        VariantStyle(set(styled["variant"]), baseline=baseline_of(styled)),
        {run.name: run.answers for run in runs},
    )


def draw(figure: Figure, tables: Tables, subtitle: list[str], pictures: Path, how: Pictures) -> Drawn:
    """Writes the figure's pictures, unless there is nothing to draw."""
    try:
        spec = specification(figure, tables, subtitle)
    except NoData as reason:
        return Drawn(figure, None, str(reason))
    write_pictures(spec, pictures, figure.name, how)
    return Drawn(figure, spec, warning=figure.warning(tables))


def main_picture(drawn: list[Drawn], tables: Tables, subtitle: list[str]) -> Picture | None:
    """The figure that the first screen shows, drawn again for the room that it has there."""
    shown = {d.figure.name: d for d in drawn if d.spec}
    name = main_figure(list(shown), tables.cells["experiment"][0], tables.cells["seq_len"].n_unique())
    if name is None:
        return None
    first = with_panel(tables.cells.with_row_index("order")).sort("order").row(0, named=True)
    with narrow(BESIDE):
        svg, panel = one_panel(specification(shown[name].figure, tables, subtitle), first["panel"].removeprefix(f"{first['experiment']} · "))
    return Picture(shown[name], Markup(svg), panel)


def specification(figure: Figure, tables: Tables, subtitle: list[str]) -> dict:
    """The figure as Vega-Lite JSON, titled with what was measured where. Throws NoData."""
    try:
        with schemapi.debug_mode(False):  # a sixth of the time; drawn_data_test.py holds all charts against the schema
            chart = figure.draw(tables)
            rows, chart.data = chart.data, alt.NamedData("rows")  # Altair would look at each value: most of a large report's time
            spec = chart.to_dict(validate=False)
    except pl.exceptions.ColumnNotFoundError as error:  # an older folder, or one of a later version that renamed it
        raise NoData(str(error).partition(";")[0]) from None
    spec["title"] = heading(figure, spec.get("title"), [*subtitle, *filter(None, [figure.warning(tables)])])
    spec["config"] = CONFIG
    if "variant" in rows.columns:  # in tooltips; a policy over its budgets has the words that they share
        rows = rows.with_columns(variant_text=label_text())
    used = fields_of(spec)  # all other columns are most of a cell's
    spec["data"] = {"values": rows.select(name for name in rows.columns if name in used).to_dicts()}
    return spec


def heading(figure: Figure, message: str | dict | None, subtitle: list[str]) -> dict:
    """The message that the drawing function computed, above what is drawn where; else what is drawn as the title."""
    messages = message["text"] if isinstance(message, dict) else message
    if not messages:
        drawn = figure.title
        text = {"expr": f"'{drawn} at ' + format(length, ',') + ' tokens'"} if figure.at_one_length else drawn
        return {"text": text, "subtitle": subtitle}
    return {"text": messages, "subtitle": [figure.title, *subtitle]}


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # a path is printed as it is, and may be no UTF-8
    sys.exit(main())
