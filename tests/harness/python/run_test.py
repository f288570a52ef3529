"""Runs from Python: the same cells as the program's, as typed frames, and the report's charts; and the tutorial's cells, as a notebook runs them."""

import ast
import csv
import json
import math
import os
import shutil
import sys
from pathlib import Path

import altair as alt
import kvlab
import numpy
import polars as pl
import pytest
from safetensors.numpy import save_file

CONFIG = {
    "experiment": ["decode", "growth"],
    "threads": 1,
    "model": {"q_heads": 4, "kv_heads": 2, "head_dim": 16},
    "sweep": {"variants": ["contiguous", "contiguous/f16", "doubling"], "seq_len": [32, 64]},
    "measure": {"repetitions": 5, "retries": 0, "steps": 2, "cold_steps": 0},
}
HOME = Path(os.environ["KVLAB_HOME"])
COMMITTED = HOME / "results" / "epyc-2core" / "quickstart"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return kvlab.run(CONFIG, out=tmp_path_factory.mktemp("run") / "out", overrides={"sweep.seq_len": [32, 48]})


def test_cells_are_those_of_the_file(results):
    with (results.folder / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert results.cells.height == len(rows) > 2 * 3 * 2  # two experiments, three variants, two lengths, and A/A tests
    assert results.cells["variant"].to_list() == [row["variant"] for row in rows]
    assert set(results.cells["seq_len"]) == {32, 48}
    for column in ("bytes_payload", "step_p50_us"):
        assert results.cells[column].to_list() == [float(row[column]) if row[column] else None for row in rows]
    assert set(results.cells["status"]) == {"ok"} and "contiguous f16" in results.summary


def test_frames_are_typed(results):
    kinds = results.cells.schema
    assert (kinds["variant"], kinds["seq_len"], kinds["bytes_payload"], kinds["err_rel_l2"]) == (pl.String, pl.Int64, pl.Int64, pl.Float64)
    assert results.columns["step_p50_us"][0] == "us" and results.columns["step_p50_us"][1]
    assert results.growth.height > 0 and results.growth.schema["step_us"] == pl.Float64
    assert results.texts.height == 0 and results.env["cpu"]["model"] and "q_heads" in results.config
    assert f"{results.cells.height} cells of 3 variants" in repr(results)


def test_figures_are_the_reports(results):
    drawn = dir(results.plot)
    assert {"memory", "latency", "growth"} <= set(drawn) and "quality_kl" not in drawn
    for name in drawn:
        chart = getattr(results.plot, name)()
        assert isinstance(chart, alt.TopLevelMixin)
        specification = chart.to_dict()  # held against the schema
        assert specification["title"] and specification["datasets"][specification["data"]["name"]]
    assert results.plot.memory.__doc__.startswith("Memory against sequence length")
    with pytest.raises(ValueError, match="^quality_kl: "):
        results.plot.quality_kl()
    with pytest.raises(AttributeError, match="no figure 'pie'; there are: memory"):
        results.plot.pie


def test_own_tensors_are_evaluated(tmp_path):
    """The program finds the same with these numbers in a file."""
    draw = numpy.random.default_rng(1).standard_normal
    tensors = {"q": draw((2, 4, 48, 32), "f4"), "k": draw((2, 2, 48, 32), "f4"), "v": draw((2, 2, 48, 32)).astype("f2")}
    found = kvlab.eval(tensors, ["contiguous/f16", "contiguous/q4_0"], prompt=16, context=48, threads=1)
    save_file(tensors, tmp_path / "own.safetensors")
    again = kvlab.eval(tmp_path / "own.safetensors", ["contiguous/f16", "contiguous/q4_0"], out=tmp_path / "out", prompt=16, context=48)
    rows = {row["variant"]: row for row in found.cells.to_dicts()}
    assert 0.03 < rows["contiguous/q4_0"]["err_rel_l2"] < 0.3 and 0 < rows["contiguous/f16"]["err_rel_l2"] < 1e-3
    assert found.cells["err_rel_l2"].to_list() == again.cells["err_rel_l2"].to_list() and again.folder == tmp_path / "out"
    with pytest.raises(ValueError, match="contigous"):
        kvlab.eval(tensors, ["contigous"])
    assert {"Cache", "run", "eval", "load"} <= set(dir(kvlab))


def test_the_charts_modules_stay_out_of_the_way(results):
    results.plot.memory()
    assert not {"data", "style", "figures", "report", "page"} & set(sys.modules)


def test_a_committed_run_is_loaded():
    quickstart = kvlab.load(COMMITTED)
    assert quickstart.cells["variant"].n_unique() == 6 and quickstart.plot.pareto().to_dict()
    longest = quickstart.cells.filter((pl.col("seq_len") == 4096) & (pl.col("experiment") == "decode"))
    sizes = dict(zip(longest["variant"], longest["bytes_payload"]))
    assert math.isclose(sizes["contiguous"] / sizes["contiguous/f16"], 2)


@pytest.mark.parametrize("config, line", [
    ({**CONFIG, "sweep": {"variants": ["contigous"]}}, "contiguous"),
    ({**CONFIG, "speed": 1}, "speed"),
    ("configs/quickstrat.toml", "configs/quickstart.toml"),
])
def test_a_mistake_is_the_programs_line(config, line, tmp_path):
    with pytest.raises(ValueError, match=line):
        kvlab.run(config, out=tmp_path / "out")
    assert not (tmp_path / "out" / "cells.csv").exists()


def test_a_folder_without_results(tmp_path):
    with pytest.raises(ValueError, match="cells.csv: no such file"):
        kvlab.load(tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        kvlab.load(tmp_path / "nowhere")


def test_a_notebook_shows_the_first_screen():
    shown = kvlab.load(COMMITTED)._repr_html_()
    assert "<code>doubling f16</code> is fastest: it takes 0.85 times as long as <code>contiguous f32</code>" in shown.replace("\n", " ")
    assert shown.count("<table>") == shown.count("<details") == 6 and shown.count("<details open>") == 1
    assert "<script" not in shown and "quickstart, cells: 42 ok" in shown


def test_a_notebooks_text_is_escaped(tmp_path):
    evil = tmp_path / "<b>run"
    shutil.copytree(COMMITTED, evil, ignore=shutil.ignore_patterns("figures", "*.html"))
    assert "&lt;b&gt;run" in kvlab.load(evil)._repr_html_()


def test_pandas_needs_no_pyarrow(results):
    pandas = pytest.importorskip("pandas", reason="no pandas here")
    for name in ("cells", "growth"):
        frame, own = results.to_pandas(name), getattr(results, name)
        assert list(frame.columns) == own.columns and len(frame) == own.height > 0
        for column in own.columns:
            assert [None if pandas.isna(value) else value for value in frame[column]] == own[column].to_list(), column
    assert str(results.to_pandas()["seq_len"].dtype) == "Int64" and str(results.to_pandas()["step_p50_us"].dtype) == "float64"


def shown(source, names):
    """Runs a cell; returns the value of its last line, which a notebook would show."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def test_the_tutorial_runs(capsys):
    """From top to bottom in one namespace."""
    cells = json.loads((HOME / "harness" / "python" / "tutorial.ipynb").read_text())["cells"]
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
