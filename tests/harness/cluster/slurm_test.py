"""A sweep through a real Slurm of two nodes: one dies in the middle, its shard is requeued, and nothing is lost."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import Cluster, missing

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
SHARDS = 4
# Quickstart's own variants and its points but the longest, with fewer steps; long enough to be killed in the middle.
OVERRIDES = ["--set", "measure.retries=0", "--set", "decode.repetitions=5", "--set", "decode.cold_steps=0", "--set", "decode.steps=4",
             "--set", "decode.seq_len=[256,512,1024,2048]", "--set", "growth.seq_len=512"]  # fmt: skip
PATIENCE_S = 400
EXACT = re.compile(r"bytes_(?!device)|err_|kept_tokens$|status$|variant$")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if missing():
        pytest.skip(f"Slurm is not installed: {', '.join(missing())}")
    with Cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def kvlab(*words, **options):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, **options)


def cells(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["cell"] for row in rows}) == len(rows)
    return {row["cell"]: row for row in rows}


def processes_of(folder: Path) -> list[int]:
    """Those that measure into the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words and b"--shard" in words:
            found.append(int(entry.name))
    return found


def running_tasks(cluster) -> list[tuple[str, str]]:
    """(shard, node)"""
    lines = cluster.ask("squeue", "-h", "-r", "-t", "R", "-o", "%K %N").splitlines()
    return [(task, node) for task, _, node in (line.partition(" ") for line in lines) if task.isdigit() and node]


def test_a_node_dies_and_nothing_is_lost(cluster, tmp_path):
    out = tmp_path / "out"
    config = HOME / "configs" / "quickstart.toml"
    submitted = kvlab("sbatch", config, "--nodes", 2, "--shards", SHARDS, "--out", out, "--submit", *OVERRIDES, env=cluster.environment)
    assert submitted.returncode == 0, submitted.stderr
    array, merge = re.search(r"submitted: array (\d+), merge (\d+)", submitted.stdout).groups()

    def measuring():
        """A shard that has begun to measure and is not done."""
        for shard, node in running_tasks(cluster):
            if processes_of(out / "shards" / shard) and (out / "shards" / shard / "samples.csv").exists():
                return shard, node
        return None

    shard, node = cluster.wait("running shard", measuring)
    assert len(running_tasks(cluster)) <= 2  # exclusive, and the limit
    cluster.kill_node(node, processes_of(out / "shards" / shard))
    cluster.wait(
        "requeued shard", lambda: restarts(cluster, f"{array}_{shard}") >= 1, PATIENCE_S
    )
    cluster.start_node(node)
    cluster.wait("end of the jobs", lambda: not cluster.ask("squeue", "-h"), PATIENCE_S)
    logs = "\n".join(log.read_text() for log in (out / "logs").iterdir())
    assert (out / "merged" / "cells.csv").exists(), logs
    assert f"JobId={merge}" not in cluster.ask("squeue", "-h")

    alone = kvlab("run", config, "--out", tmp_path / "alone", "--no-plots", *OVERRIDES, env={**os.environ, "KVLAB_PYTHON": ""})
    assert alone.returncode == 0, alone.stderr
    merged, whole = cells(out / "merged"), cells(tmp_path / "alone")
    assert set(merged) == set(whole)
    for cell, row in merged.items():
        for column in filter(EXACT.match, row):
            assert row[column] == whole[cell][column], (cell, column)


def restarts(cluster, task: str) -> int:
    found = re.search(r"Restarts=(\d+)", cluster.ask("scontrol", "show", "job", task))
    return int(found[1]) if found else 0


def test_the_cluster_comes_up_with_one_command(tmp_path):
    if missing():
        pytest.skip(f"Slurm is not installed: {', '.join(missing())}")
    script = Path(__file__).with_name("slurm_cluster.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path / "c"), "sinfo", "-h", "-o", "%D %T"], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout.split()) == (0, ["2", "idle"]), done.stderr
