"""Runs the tutorial's code cells from top to bottom in one namespace, as a notebook does, and looks at what they show."""

import ast
import json
import os
from pathlib import Path

import altair as alt
import polars as pl

TUTORIAL = Path(os.environ["KVLAB_HOME"]) / "harness" / "python" / "tutorial.ipynb"


def shown(source, names):
    """Runs a cell; returns the value of its last line, which a notebook would show."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def test_the_tutorial_runs(capsys):
    cells = json.loads(TUTORIAL.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    names = {}
    values = [shown("".join(cell["source"]), names) for cell in code]
    printed = capsys.readouterr().out
    assert "q8_0" in values[0] and "relative L2 error of q8_0: 0.0" in printed and "paged/q8_0" in printed
    assert [0, 1, *range(12, 20)] in values
    frame = next(value for value in values if isinstance(value, pl.DataFrame))
    assert frame.height == 8 and set(frame["status"]) == {"ok"}
    charts = [value for value in values if isinstance(value, alt.TopLevelMixin)]
    assert len(charts) == 2 and all(chart.to_html() for chart in charts)
