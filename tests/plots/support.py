"""Runs plots/report.py, and reads what it says."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

PLOTS = Path(__file__).resolve().parents[2] / "plots"


def report(*arguments) -> CompletedProcess:
    """The outcome of `python plots/report.py ARGUMENTS`, in this process: starting Vega takes longer than most reports. Writes no
    PNG unless it is told to."""
    from report import main  # conftest.py says where

    words = ["--figures", "svg", *map(str, arguments)]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as error:
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code
    return CompletedProcess(words, code, out.getvalue(), error.getvalue())


def reported(*arguments) -> CompletedProcess:
    """A report that has to succeed."""
    done = report(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def specifications(folder: Path) -> tuple[dict[str, dict], dict[str, str]]:
    """The figures of the folder's report as Vega-Lite JSON, and those that it lacks, with the reasons."""
    from data import load_runs  # conftest.py says where
    from figures.list import FIGURES
    from page import script_json
    from prepare import NoData
    from report import specification, tables_of

    specs, reasons = {}, {}
    tables = tables_of(load_runs([folder]))
    for figure in FIGURES:
        try:
            specs[figure.name] = json.loads(script_json(specification(figure, tables, [])))
        except NoData as reason:
            reasons[figure.name] = str(reason)
    return specs, reasons


def left_out(folder: Path) -> dict[str, str]:
    return specifications(folder)[1]


def refused(folder: Path, *arguments) -> str:
    """The line that a report which cannot be made ends with; nothing is written."""
    done = report(folder, *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not (folder / "report.html").exists()
    return done.stderr.rstrip()
