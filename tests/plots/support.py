"""Runs plots/report.py, and reads what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

PLOTS = Path(__file__).resolve().parents[2] / "plots"


def report(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, str(PLOTS / "report.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def left_out(folder: Path) -> dict[str, str]:
    """The figures that the folder's report.html lists as left out, with the reasons."""
    from figures.list import FIGURES  # conftest.py says where

    listed = re.findall(r"<p>(.*): left out, (.*)\.</p>", (folder / "report.html").read_text())
    names = {figure.title: figure.name for figure in FIGURES}
    return {names[unescape(title)]: unescape(reason) for title, reason in listed}


def first_line(process: subprocess.CompletedProcess) -> str:
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr.rstrip()
