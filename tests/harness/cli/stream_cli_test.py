"""The stream experiment, as users meet it: the config that comes with kvlab, shortened, and what is refused."""
from __future__ import annotations

import csv
import math
import os
import subprocess
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
ENV = {**os.environ, "OMP_WAIT_POLICY": "passive", "KVLAB_PYTHON": ""}
SHORT = {
    "stream.variants": '["contiguous","contiguous/ring(window=64)","contiguous/ring(window=60,sinks=4,positions=cache)"]',
    "stream.recompute": "[64]",
    "stream.seq_len": 1280,
    "stream.step_tokens": 64,
}


def run(out: Path, **changed: object) -> subprocess.CompletedProcess[str]:
    settings = {**SHORT, **{key.replace("__", "."): value for key, value in changed.items()}}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [PROGRAM, "run", HOME / "configs" / "stream.toml", "--out", out, "--no-plots", *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env=ENV)


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stream") / "out"
    done = run(out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_cell_has_its_numbers(results: Path) -> None:
    rows = table(results / "cells.csv")
    recomputed = "recompute(window=64,stride=32)"
    assert [row["variant"] for row in rows][-1] == recomputed and len(rows) == 4
    for row in rows:
        assert row["status"] == "ok" and row["predictions"] == "1280" and row["versus"] == recomputed
        assert row["trained_tokens"] == "1024"
        assert math.isclose(float(row["perplexity"]), math.exp(float(row["loss"])), rel_tol=1e-6)
        assert (row["bytes_payload"] == "") == (row["variant"] == recomputed)
        assert (row["chunk_max_diff"] == "") == (row["variant"] == recomputed)
        assert row["variant"] == recomputed or 0 < float(row["chunk_max_diff"]) < 2e-3
    assert rows[-1]["verdict"] == "baseline" and float(rows[-1]["loss_change"]) == 0


def test_buckets_add_up_to_the_cell(results: Path) -> None:
    buckets = table(results / "positions.csv")
    for cell in table(results / "cells.csv"):
        own = [row for row in buckets if row["cell"] == cell["cell"]]
        assert [int(row["position_first"]) for row in own] == list(range(0, 1280, 64))
        loss = sum(float(row["loss"]) * int(row["predictions"]) for row in own) / 1280
        assert math.isclose(loss, float(cell["loss"]), rel_tol=1e-6)


def test_chunks_change_nothing(results: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "out", stream__step_tokens=1, stream__recompute="[64]", stream__seq_len=1280)
    assert done.returncode == 0, done.stderr
    for one, other in zip(table(results / "cells.csv"), table(tmp_path / "out" / "cells.csv")):
        assert abs(float(one["loss"]) - float(other["loss"])) < 1e-4


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"stream__seq_len": 200000}, "window of 200000 needs 200001"),
        ({"stream__recompute": "[2000]"}, "at most the model's trained context, 1024"),
        ({"stream__stride": 65}, "at least the stride, 65 tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    done = run(tmp_path / "out", **changed)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
