"""Runs that are killed, stopped and resumed."""

import csv
import json
import random
import signal
import subprocess
import time

import pytest
from program import ENV, PROGRAM, TIMEOUT_S, assert_complete, assert_refused, cells_by_key, lines_by_cell, run


def test_resume_after_kills_at_random_moments(config, uninterrupted, tmp_path):
    whole, seconds = uninterrupted
    draw = random.Random(7)
    killed = 0
    for trial in range(12):
        folder = tmp_path / str(trial)
        command = [PROGRAM, "run", str(config), "--out", str(folder), "--no-plots"]
        for kill in range(3):
            child = subprocess.Popen(command + ["--resume"] * (kill > 0), env=ENV, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            time.sleep(draw.uniform(0, 0.8 * seconds))
            child.kill()
            error = child.communicate()[1]
            assert child.returncode in (-signal.SIGKILL, 0), error
            killed += child.returncode != 0
            before = lines_by_cell(folder / "cells.csv") if (folder / "cells.csv").exists() else {}
            samples = lines_by_cell(folder / "samples.csv") if before else {}
        done = run(config, folder, "--resume")
        assert done.returncode == 0, done.stderr
        assert_complete(folder, whole)
        after, after_samples = lines_by_cell(folder / "cells.csv"), lines_by_cell(folder / "samples.csv")
        for cell, line in before.items():
            assert after[cell] == line  # byte for byte
            assert after_samples.get(cell) == samples.get(cell)
    assert killed >= 6  # else nothing was tried


@pytest.mark.parametrize("name", ["cells.csv", "samples.csv", "growth.csv"])
@pytest.mark.parametrize("cut", [1, 40])
def test_resume_after_a_torn_line(config, uninterrupted, tmp_path, name, cut):
    whole, _ = uninterrupted
    folder = tmp_path / "torn"
    subprocess.run(["cp", "-r", whole, folder], check=True)
    text = (folder / name).read_bytes()
    (folder / name).write_bytes(text[:-cut])
    done = run(config, folder, "--resume")
    assert done.returncode == 0, done.stderr
    assert set(cells_by_key(folder)) == set(cells_by_key(whole))
    if name == "cells.csv":
        assert_complete(folder, whole)


def test_resume_of_a_finished_run_changes_no_row(config, uninterrupted):
    whole, _ = uninterrupted
    names = ["cells.csv", "samples.csv", "growth.csv", "config.toml", "benchmark.json"]
    before = {name: (whole / name).read_bytes() for name in names}
    assert run(config, whole, "--resume").returncode == 0
    assert {name: (whole / name).read_bytes() for name in names} == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_keeps_what_is_finished(config, uninterrupted, tmp_path, number):
    whole, _ = uninterrupted
    folder = tmp_path / "stopped"
    # Enough repetitions that the second block is still running when the signal comes.
    more = ["--set", "measure.repetitions=1000", "--set", "measure.steps=64"]
    child = subprocess.Popen([PROGRAM, "run", str(config), "--out", str(folder), "--no-plots", *more], env=ENV,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in child.stderr:
        if line.startswith("[2/"):
            break
    child.send_signal(number)
    out, _ = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 130
    assert "stopped" in out and "--resume" in out
    cells = cells_by_key(folder)
    assert cells and {row["seq_len"] for row in cells.values()} == {"32"}
    assert json.loads((folder / "env.json").read_text())["finished"] == ""
    assert json.loads((folder / "benchmark.json").read_text())["benchmarks"]
    # The same config may go on; its repetitions are many, so another config's refusal is what is tried.
    other = run(config, folder, "--resume")
    assert other.returncode == 2 and "another config" in other.stderr
    assert cells_by_key(folder) == cells


def test_one_run_at_a_time_in_a_folder(config, tmp_path):
    folder = tmp_path / "busy"
    more = ["--set", "measure.repetitions=1000", "--set", "measure.steps=64"]
    child = subprocess.Popen([PROGRAM, "run", str(config), "--out", str(folder), "--no-plots", *more], env=ENV,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    child.stderr.readline()
    second = run(config, folder, "--resume", *more)
    child.kill()
    child.communicate()
    assert_refused(second, "another kvlab is writing to")
