"""Runs that are killed, stopped and resumed."""

import json
import signal
import subprocess

import pytest
from program import (
    ENV, PROGRAM, TIMEOUT_S, assert_complete, assert_refused, cells_by_key, change_environment, run, start, succeeded, table,
    write_table,
)  # fmt: skip

LONG = {"measure.repetitions": 200, "measure.steps": 64}


@pytest.mark.parametrize("name", ["cells.csv", "samples.csv", "growth.csv"])
@pytest.mark.parametrize("cut", [1, 40])
def test_resume_after_a_torn_line(config, results, copy, name, cut):
    text = (copy / name).read_bytes()
    (copy / name).write_bytes(text[:-cut])
    succeeded(run(config, copy, "--resume"))
    assert set(cells_by_key(copy)) == set(cells_by_key(results))
    if name == "cells.csv":
        assert_complete(copy, results)


def test_finished_work_says_nothing_of_the_time_left(config, results, copy):
    """Of four sweep points the last is left: a clock that starts with the others' would take the last for a matter of no time."""
    rows = (copy / "cells.csv").read_text().splitlines(keepends=True)
    last = table(copy / "cells.csv")[-1]
    is_last = lambda row: (row["experiment"], row["seq_len"]) == (last["experiment"], last["seq_len"])  # noqa: E731
    count = sum(is_last(row) for row in table(copy / "cells.csv"))
    (copy / "cells.csv").write_text("".join(rows[:-count]))
    told = [line for line in succeeded(run(config, copy, "--resume")).stderr.splitlines() if line.startswith("[")]
    assert told and all(line.startswith("[4/4]") for line in told) and "left" not in told[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_keeps_what_is_finished(config, tmp_path, number):
    folder = tmp_path / "stopped"
    # Enough repetitions that the second sweep point is still running when the signal comes.
    child = start(config, folder, LONG, stdout=subprocess.PIPE)
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
    assert_refused(run(config, folder, "--resume"), "another config")
    assert cells_by_key(folder) == cells


def test_one_run_at_a_time_in_a_folder(config, tmp_path):
    folder = tmp_path / "busy"
    child = start(config, folder, LONG)
    child.stderr.readline()
    second = run(config, folder, "--resume", LONG)
    child.kill()
    child.communicate()
    assert_refused(second, "another kvlab is writing to")


def test_starts_at_the_same_moment_leave_one_run_whole(config, tmp_path):
    small = {"sweep.variants": ["contiguous"], "sweep.seq_len": 8, "experiment": "decode"}
    for trial in range(30):
        folder = tmp_path / str(trial)
        both = [start(config, folder, small) for _ in range(2)]
        errors = [child.communicate(timeout=TIMEOUT_S)[1] for child in both]
        assert 0 in [child.returncode for child in both], errors
        for child, error in zip(both, errors):
            assert child.returncode == 0 or any(s in error for s in ("another kvlab", "already holds results")), error
        assert len(cells_by_key(folder)) == 2  # and the A/A test
        assert json.loads((folder / "env.json").read_text())["finished"]


def test_closed_streams_get_nothing_into_the_tables(config, results, tmp_path):
    folder = tmp_path / "closed"
    command = [PROGRAM, "run", str(config), "--out", str(folder), "--no-plots"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command], env=ENV, timeout=TIMEOUT_S,
                          stdout=subprocess.DEVNULL)
    assert done.returncode == 0
    assert_complete(folder, results)
    succeeded(run(config, folder, "--resume"))


@pytest.mark.parametrize(
    "section, name, value",
    [("kvlab", "git_commit", "0123456"), (None, "isa", "avx9"), (None, "threads", 64), ("cpu", "model", "another CPU")],
)
def test_cells_of_two_builds_or_machines_are_not_mixed(config, copy, section, name, value):
    rows = table(copy / "cells.csv")
    write_table(copy / "cells.csv", rows[:-3])  # some is left to do
    change_environment(copy, section, **{name: value})
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert_refused(run(config, copy, "--resume"), f"{name} was {json.dumps(value)} and is", str(copy))
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_a_table_of_another_version_is_named(config, copy):
    text = (copy / "cells.csv").read_text().replace("step_p50_us", "step_median", 1)
    (copy / "cells.csv").write_text(text)
    assert_refused(run(config, copy, "--resume"), "'step_median', is not known", "another version")
    assert (copy / "cells.csv").read_text() == text
