"""Plays a newcomer: each addition is one file and at most one line in one list, and reaches the report.

In a copy of the project a retention without an FP64 policy, a codec over an existing format, a block format with its
codec, an experiment, a metric, a chart and a claim are added and built. A format is a line in two lists more. A policy in
Python needs neither a list nor a build.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
NEW = Path(__file__).parent / "newcomer"
TIMEOUT_S = 2500  # for hangs alone: a build takes minutes
OPTIONS = "-G Ninja -DCMAKE_BUILD_TYPE=Debug -DKVLAB_UNITY=ON -DKVLAB_ISAS=best -DKVLAB_CUDA=OFF".split()


@dataclass
class Addition:
    file: str = ""  # path of the newcomer's file, or of its folder; none where a list says all
    list: str = ""  # the list that names it; a claim needs none
    after: str = ""  # a line of that list
    line: str = ""  # text after it from now on


FORMAT = [
    Addition("variants/codec/q5_n.cc", "variants/list.h", "X(q5_1)", "  X(q5_n) \\"),
    Addition("", "kernels/span.h", "kQ6_0,       // ik_llama.cpp: 32 6-bit codes under one f16 scale", "  kQ5N,"),
    Addition("", "kernels/format/ggml_levels.h", '{.format = Format::kQ6_0, .name = "q6_0", .bits = 6, .middle = 32, .nibbles_at = 8},',
             '    {.format = Format::kQ5N, .name = "q5_n", .bits = 5, .middle = 15, .nibbles_at = 0},'),
]  # fmt: skip
ADDITIONS = [
    *FORMAT,
    Addition("variants/retention/fifo.cc", "variants/list.h", "X(ring)", "  X(fifo) \\"),
    Addition("variants/codec/k8v16.cc", "variants/list.h", "X(q8_0)", "  X(k8v16) \\"),
    Addition("harness/experiments/probe", "harness/experiments/list.h", "EXPERIMENT(kBudget)", "  EXPERIMENT(kProbe) \\"),
    Addition("harness/verify/metrics/mean_abs.cc", "harness/verify/metrics/list.h", "X(max_abs)", "  X(mean_abs) \\"),
    Addition("plots/figures/mean_abs.py", "plots/figures/list.py", '"memory": "",', '    "mean_abs": "",'),
    Addition("plots/figures/probe.py", "plots/figures/list.py", '"budget": "budget",', '    "probe": "probe",'),
    Addition("configs/claims/newcomer.toml"),
]  # fmt: skip
VARIANTS = ["contiguous", "contiguous/fifo(budget=16)", "contiguous/k8v16", "contiguous/q5_n"]
CONFIG = f"""
experiment = ["decode", "probe"]
threads = 1
[model]
q_heads = 4
kv_heads = 2
head_dim = 32
[sweep]
variants = {json.dumps(VARIANTS)}
seq_len = 64
[measure]
repetitions = 2
retries = 0
steps = 2
cold_steps = 0
[probe]
tail = [1, 4]
"""
POLICY = "contiguous/python(own_policy.py:score,budget=24,recent=8,window=8,attention=newest)"
READING = f"""
experiment = "quality"
[workload]
model = "configs/models/kvlab-recall-1m"
text = "configs/models/kvlab-recall-1m/sample.txt"
[sweep]
variants = ["contiguous", "contiguous/h2o(heavy=12,recent=12)", "{POLICY}"]
seq_len = 96
[quality]
prompt = 64
"""


def add(project, addition):
    if addition.file:
        new = NEW / Path(addition.file).name
        (shutil.copytree if new.is_dir() else shutil.copy)(new, project / addition.file)
    if not addition.list:
        return
    path = project / addition.list
    lines = path.read_text().splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.strip().rstrip("\\").rstrip() == addition.after]
    path.write_text("\n".join([*lines[: at + 1], addition.line, *lines[at + 1 :]]) + "\n")


def in_folder(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    copy = (tmp_path_factory.mktemp("newcomer") / "kvlab").resolve()
    for folder in ("kernels", "variants", "harness", "plots", "configs", "tests"):
        shutil.copytree(HOME / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HOME / "CMakeLists.txt", copy)
    for addition in ADDITIONS:
        add(copy, addition)
    in_folder(copy, "cmake", "-B", ".build", *OPTIONS)
    in_folder(copy, "cmake", "--build", ".build", "--target", "kvlab")
    return copy


def kvlab(project, *arguments):
    home = {**os.environ, "KVLAB_HOME": str(project), "KVLAB_PYTHON": sys.executable, "OMP_WAIT_POLICY": "passive"}
    command = [project / ".build/harness/kvlab", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=home)


def test_every_list_takes_its_line(tmp_path):
    for name in {addition.list for addition in ADDITIONS} - {""}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOME / name, tmp_path / name)
    for addition in ADDITIONS:
        (tmp_path / addition.file).parent.mkdir(parents=True, exist_ok=True)
        add(tmp_path, addition)
        assert not addition.list or addition.line in (tmp_path / addition.list).read_text().splitlines()


@pytest.fixture(scope="module")
def results(project):
    (project / "newcomer.toml").write_text(CONFIG)
    done = kvlab(project, "run", project / "newcomer.toml", "--out", project / "out")
    assert done.returncode == 0, done.stderr
    return project / "out"


def cells(results):
    with (results / "cells.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_listing_has_them_all(project):
    listing = kvlab(project, "list").stdout
    for word in ("fifo", "k8v16", "q5_n", "probe", "err_mean_abs"):
        assert re.search(rf"^\s*{word}\b", listing, re.M), listing


def test_every_cell_succeeds(results):
    rows = cells(results)
    assert {row["experiment"] for row in rows} == {"decode", "probe"}
    assert {row["variant"] for row in rows} == set(VARIANTS)
    assert {(row["status"], row["reason"]) for row in rows} == {("ok", "")}


def test_a_retention_without_an_fp64_policy_says_so(results):
    for row in cells(results):
        evicts = "fifo" in row["variant"]
        assert row["eviction_check"] == ("no_policy" if evicts else "")
        assert row["kept_tokens"] == ("16" if evicts else "64")
        assert (float(row["err_retention_rel_l2"]) > 1e-3) == evicts


def test_the_codecs_error_is_told(results):
    for row in cells(results):
        assert (1e-4 < float(row["err_codec_rel_l2"]) < 2e-2) == ("k8v16" in row["variant"])


def test_a_block_format_is_four_files_and_few_lines():
    files = {addition.file for addition in FORMAT} - {""} | {addition.list for addition in FORMAT}
    assert len(files) <= 4
    assert len((NEW / "q5_n.cc").read_text().splitlines()) + len(FORMAT) <= 120


def test_attention_multiplies_the_new_formats_codes(results):
    for row in cells(results):
        if row["variant"] == "contiguous/q5_n" and row["experiment"] == "decode":
            assert row["kernel"].endswith("/q5_n") and not row["kernel"].startswith("scalar")
            assert 2e-2 < float(row["err_codec_rel_l2"]) < 0.2
            # Rows that are decoded to f32 have errors of 1e-7.
            assert 1e-6 < float(row["err_kernel_rel_l2"]) < 2e-3


def test_the_experiments_axis_column_and_chart_are_found_everywhere(project, results):
    rows = [row for row in cells(results) if row["experiment"] == "probe"]
    assert [row["tail_tokens"] for row in rows] == ["1"] * 4 + ["4"] * 4
    assert all(float(row["probe_norm"]) > 0 for row in rows)
    assert {row["tail_tokens"] + row["probe_norm"] for row in cells(results) if row["experiment"] == "decode"} == {""}
    columns = {column["name"]: column for column in json.loads((results / "columns.json").read_text())}
    assert columns["tail_tokens"] | {"axis": True, "title": "last {} tokens", "key": "tail", "experiments": ["probe"]} == columns["tail_tokens"]
    assert columns["probe_norm"]["experiments"] == ["probe"] and "axis" not in columns["probe_norm"]
    summary = kvlab(project, "summary", results, "--table", "full").stdout
    assert "last 4 tokens" in summary and re.search(r"variant\s+held \(whole model\)\s+norm\s+error", summary), summary
    assert "Norm of the last outputs" in (results / "report.html").read_text()
    assert (results / "figures" / "probe.png").stat().st_size > 0
    refused = kvlab(project, "run", project / "newcomer.toml", "--set", "decode.tail=[1]", "--out", project / "refused")
    assert refused.returncode == 2 and "decode.tail is not a key of decode but of probe" in refused.stderr


def test_the_metric_is_a_column_with_a_chart(results):
    for row in cells(results):
        assert 0 < float(row["err_mean_abs"]) <= float(row["err_max_abs"])
    columns = {column["name"]: column for column in json.loads((results / "columns.json").read_text())}
    assert columns["err_mean_abs"]["meaning"] == "mean absolute difference of an output from FP64's"
    assert "Mean absolute error" in (results / "report.html").read_text()
    assert (results / "figures" / "mean_abs.png").stat().st_size > 0


def test_the_claim_is_checked(project):
    done = kvlab(project, "reproduce", "newcomer", "--out", project / "claims")
    assert done.returncode == 0, done.stderr
    with (project / "claims" / "claims.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["verdict"] == "reproduced"


def test_a_policy_in_python_stands_beside_h2o(project):
    shutil.copy(NEW / "own_policy.py", project)
    (project / "reading.toml").write_text(READING)
    done = kvlab(project, "run", project / "reading.toml", "--out", project / "read")
    assert done.returncode == 0, done.stderr
    rows = {row["variant"]: row for row in cells(project / "read")}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert [row["kept_tokens"] for row in rows.values()] == ["96", "24", str(24 + 96 - 64)]
    report = (project / "read" / "report.html").read_text()
    assert "own_policy.py:score" in report and "h2o(heavy=12,recent=12)" in report
