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
    more = ["--set", "measure.repetitions=200", "--set", "measure.steps=64"]
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
    more = ["--set", "measure.repetitions=200", "--set", "measure.steps=64"]
    child = subprocess.Popen([PROGRAM, "run", str(config), "--out", str(folder), "--no-plots", *more], env=ENV,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    child.stderr.readline()
    second = run(config, folder, "--resume", *more)
    child.kill()
    child.communicate()
    assert_refused(second, "another kvlab is writing to")


def test_starts_at_the_same_moment_leave_one_run_whole(config, tmp_path):
    small = ["--set", 'sweep.variants=["contiguous"]', "--set", "sweep.seq_len=8", "--set", 'experiment="decode"']
    for trial in range(30):
        folder = tmp_path / str(trial)
        command = [PROGRAM, "run", str(config), "--out", str(folder), "--no-plots", *small]
        both = [subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                for _ in range(2)]  # fmt: skip
        errors = [child.communicate(timeout=TIMEOUT_S)[1] for child in both]
        assert 0 in [child.returncode for child in both], errors
        for child, error in zip(both, errors):
            assert child.returncode == 0 or any(s in error for s in ("another kvlab", "already holds results")), error
        assert len(cells_by_key(folder)) == 2  # and the A/A test
        assert json.loads((folder / "env.json").read_text())["finished"]


def test_closed_streams_get_nothing_into_the_tables(config, uninterrupted, tmp_path):
    whole, _ = uninterrupted
    folder = tmp_path / "closed"
    command = [PROGRAM, "run", str(config), "--out", str(folder), "--no-plots"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command], env=ENV, timeout=TIMEOUT_S,
                          stdout=subprocess.DEVNULL)
    assert done.returncode == 0
    assert_complete(folder, whole)
    assert run(config, folder, "--resume").returncode == 0


@pytest.mark.parametrize(
    "section, name, value",
    [("kvlab", "git_commit", "0123456"), (None, "isa", "avx9"), (None, "threads", 64), ("cpu", "model", "another CPU")],
)
def test_cells_of_two_builds_or_machines_are_not_mixed(config, uninterrupted, tmp_path, section, name, value):
    whole, _ = uninterrupted
    folder = tmp_path / "mixed"
    subprocess.run(["cp", "-r", whole, folder], check=True)
    lines = (folder / "cells.csv").read_text().splitlines(keepends=True)
    (folder / "cells.csv").write_text("".join(lines[:-3]))  # some is left to do
    environment = json.loads((folder / "env.json").read_text())
    (environment[section] if section else environment)[name] = value
    (folder / "env.json").write_text(json.dumps(environment))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert_refused(run(config, folder, "--resume"), f"{name} was {json.dumps(value)} and is", str(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_table_of_another_version_is_named(config, uninterrupted, tmp_path):
    whole, _ = uninterrupted
    folder = tmp_path / "older"
    subprocess.run(["cp", "-r", whole, folder], check=True)
    text = (folder / "cells.csv").read_text()
    (folder / "cells.csv").write_text(text.replace("step_p50_us", "step_median", 1))
    assert_refused(run(config, folder, "--resume"), "'step_median', is not known", "another version")
    assert (folder / "cells.csv").read_text().startswith(text[:20])
