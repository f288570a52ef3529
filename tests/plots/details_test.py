"""The details that a row of the report opens: its samples, and a command that measures the cell again."""

import os
import shlex
import subprocess

import polars as pl
import pytest
from data import load_runs
from details import cells_data, histogram
from synthetic import rows_of, synthetic_run, write_csv
from tables import CELL

PROGRAM = os.environ.get("KVLAB_PROGRAM")
CONFIG = """
experiment = ["decode", "prefill", "budget"]
[model]
q_heads = 2
kv_heads = 1
head_dim = 32
[sweep]
variants = ["contiguous", "paged(block=16)/f16", "contiguous/ring(window={budget})"]
budget = [16]
seq_len = [32, 64]
workload = ["gaussian", "sinks"]
[measure]
repetitions = 1
steps = 2
cold_steps = 0
retries = 0
"""


def details(folder):
    runs = load_runs([folder])
    cells = runs[0].cells.with_row_index(CELL)
    return cells, cells_data(cells, runs, runs[0].columns)


def measure(command, out):
    subprocess.run([PROGRAM, *command, "--no-plots", "--out", out], check=True, capture_output=True, timeout=600)
    return {row["cell"]: row for row in rows_of(out / "cells.csv")}


@pytest.mark.skipif(not PROGRAM, reason="KVLAB_PROGRAM is not set")
def test_the_command_of_a_row_measures_the_same_cell_again(tmp_path):
    (tmp_path / "small.toml").write_text(CONFIG)
    rows = measure(["run", tmp_path / "small.toml"], tmp_path / "run")
    cells, found = details(tmp_path / "run")
    commands = dict(zip(cells["cell"], found["commands"]))
    assert list(commands) == list(rows)
    chosen = [name for name in rows if "sinks" in name and "s64" in name and "paged" in name]
    chosen += [name for name in rows if "budget" in name and "gaussian" in name and "s32" in name and "ring" in name]
    assert len(chosen) >= 4
    for number, name in enumerate(chosen):
        program, *command = shlex.split(commands[name])
        assert program == "./kvlab"
        again = measure(command, tmp_path / str(number))
        assert again[name]["err_rel_l2"] == rows[name]["err_rel_l2"]
        assert {row["variant"] for row in again.values()} <= {"contiguous", rows[name]["variant"]}
        assert {(row["workload"], row["seq_len"]) for row in again.values()} == {(rows[name]["workload"], rows[name]["seq_len"])}
        if rows[name]["versus"] and not rows[name]["arm"]:
            assert again[name]["versus"] == rows[name]["versus"]


def test_samples_are_histograms_of_their_cell(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    assert details(folder)[1]["samples"] == {}
    cell = rows_of(folder / "cells.csv")[2]["cell"]
    rows = [{"cell": cell, "kind": kind, "step_us": us} for kind, us in (("step", 1), ("step", 100), ("cold", 7))]
    write_csv(folder / "samples.csv", list(rows[0]), [*rows, {"cell": "of another run", "kind": "step", "step_us": 3}])
    samples = details(folder)[1]["samples"]
    assert list(samples) == [2]
    assert [(s["kind"], s["low"], s["high"], sum(s["counts"])) for s in samples[2]] == [("step", 1, 100, 2), ("cold", 7, 7, 1)]


def test_a_histogram_counts_every_sample_on_a_log_axis():
    found = histogram(pl.Series([1.0] * 7 + [10.0] * 2 + [100.0]))
    counts = found["counts"]
    assert (sum(counts), counts[0], counts[-1]) == (10, 7, 1)
    assert counts[len(counts) // 2 - 1] + counts[len(counts) // 2] == 2


def test_every_measured_column_of_every_cell_is_there_once(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    cells, found = details(folder)
    names = [column["name"] for column in found["columns"]]
    assert len(found["rows"]) == cells.height == len(found["commands"])
    assert "step_p50_us" in names and CELL not in names and len(names) == len(set(names))
    assert [row[names.index("variant")] for row in found["rows"]] == cells["variant"].to_list()
