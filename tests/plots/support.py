"""Runs plots/report.py, and reads what it says."""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from html import unescape
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


def left_out(folder: Path) -> dict[str, str]:
    """The figures that the folder's report.html lists as left out, with the reasons."""
    from figures.list import FIGURES  # conftest.py says where

    listed = re.findall(r"<p>(.*): left out, (.*)\.</p>", (folder / "report.html").read_text())
    names = {figure.title: figure.name for figure in FIGURES}
    return {names[unescape(title)]: unescape(reason) for title, reason in listed}


def first_line(process: CompletedProcess) -> str:
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr.rstrip()
