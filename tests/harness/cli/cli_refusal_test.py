"""Refusals for the state of things: folders, disks, clocks, stacks. refusals.toml has inputs that are wrong by themselves."""

import json
import os
import resource
import shutil
import subprocess
import time

import pytest
from program import (
    ENV, assert_refused, cells_of, kvlab, no_file_beyond, run, skip_where_openmp_needs_a_file, start, succeeded, table, unmeasured_cells,
    without_gpu,
)  # fmt: skip


@without_gpu
def test_a_gpu_that_is_not_there_is_said(tmp_path):
    assert_refused(kvlab("run", "configs/ci.toml", "--device", "cuda", cwd=tmp_path), "no GPU can be used")


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "behind.csv")
    succeeded(kvlab("tables", "--variants", "concat", "--out", tmp_path / "link.csv"))
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "behind.csv").read_text().count("\n") > 1


def test_what_a_file_says_is_no_command_of_the_terminal(copy):
    text = (copy / "cells.csv").read_text()
    (copy / "cells.csv").write_text(text.replace("concat f16", "concat f16\x1b[2J\u009b2J\x7f"))
    done = kvlab("summary", copy, "--table", "full")
    assert done.returncode == 0 and "concat f16" in done.stdout
    assert not set(done.stdout) & {"\x1b", "\u009b", "\x7f"}


def test_out_is_refused_where_it_is_something_else(config, results, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert_refused(run(config, tmp_path / "file"), "is a file; a folder is needed")
    assert_refused(run(config, tmp_path / "file" / "below"), "cannot")
    assert_refused(run(config, results), "already holds results", "--resume")
    # Another tool's cells.csv is not ours to overwrite.
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "cells.csv").write_text("precious\n")
    for resume in ([], ["--resume"]):
        assert_refused(run(config, tmp_path / "theirs", *resume), "holds other files")
    assert (tmp_path / "theirs" / "cells.csv").read_text() == "precious\n"
    (tmp_path / "empty").mkdir()
    succeeded(run(config, tmp_path / "empty", {"sweep.seq_len": 8}))


@pytest.mark.parametrize("size", [0, 100, 700, 900])
def test_a_disk_full_from_the_start_leaves_nothing(config, tmp_path, size):
    done = run(config, tmp_path / "out", preexec_fn=no_file_beyond(size))
    skip_where_openmp_needs_a_file(done)
    assert_refused(done, "cannot write", "out", out=tmp_path / "out")


def test_a_full_spill_disk_ends_one_cell_until_there_is_room(config, tmp_path):
    """128 tokens fit into the file that may not grow beyond 1 MiB, 2048 do not; the run and its other cells go on."""
    (tmp_path / "tiers").mkdir()
    spilling = f"tiered(hot=64,warm=0,dir={tmp_path / 'tiers'})"
    more = {"sweep.variants": ["contiguous", spilling], "sweep.seq_len": [2048, 128], "model.head_dim": 128, "experiment": "decode"}
    succeeded(run(config, tmp_path / "out", more, preexec_fn=no_file_beyond(1 << 20)))
    rows = [row for row in table(tmp_path / "out" / "cells.csv") if not row["cell"].endswith(" aa_test")]
    assert {(row["variant"], row["seq_len"], row["status"]) for row in rows} == {
        ("contiguous", "2048", "ok"), (spilling, "2048", "out_of_memory"), ("contiguous", "128", "ok"), (spilling, "128", "ok")}
    (refused,) = [row for row in rows if row["status"] != "ok"]
    assert refused["reason"] == f"no room for 1048576 more bytes in '{tmp_path / 'tiers'}': File too large" and refused["step_p50_us"] == ""
    assert all(float(row["step_p50_us"]) > 0 for row in rows if row is not refused)
    assert list((tmp_path / "tiers").iterdir()) == []
    assert json.loads((tmp_path / "out" / "env.json").read_text())["finished"]
    succeeded(run(config, tmp_path / "out", more, "--resume"))
    assert {row["status"] for row in table(tmp_path / "out" / "cells.csv")} == {"ok"}


def test_a_full_disk_is_no_failed_verification_of_a_checkpoint(config, tmp_path):
    more = {"experiment": "checkpoint", "sweep.variants": ["contiguous"], "sweep.seq_len": [4096, 64], "model.head_dim": 64}
    succeeded(run(config, tmp_path / "out", more, preexec_fn=no_file_beyond(1 << 20)))
    rows = {row["seq_len"]: row for row in table(tmp_path / "out" / "cells.csv")}
    assert (rows["4096"]["status"], rows["64"]["status"]) == ("out_of_memory", "ok")
    assert rows["4096"]["reason"].startswith("cannot write") and "File too large" in rows["4096"]["reason"]


def test_a_run_that_measures_nothing_says_so(config, tmp_path):
    rows = unmeasured_cells(config, tmp_path / "out", {"measure.memory": "1kB"})
    assert {row["status"] for row in rows} == {"out_of_memory"}


def test_a_table_that_is_removed_ends_the_run(config, tmp_path):
    child = start(config, tmp_path / "out", {"measure.repetitions": 40})
    cells = tmp_path / "out" / "cells.csv"
    while child.poll() is None and (not cells.exists() or cells.read_text().count("\n") < 2):
        time.sleep(0.01)
    cells.unlink()
    error = child.communicate()[1]
    assert child.returncode == 2 and f"{cells} was removed or replaced while it was written" in error, error


@pytest.mark.parametrize("name, value", [("OMP_THREAD_LIMIT", "1"), ("OMP_DYNAMIC", "true")])
def test_threads_are_those_that_ran(config, tmp_path, name, value):
    settings = {"threads": 2, "sweep.seq_len": 32, "experiment": "decode"}
    cells = cells_of(config, tmp_path / "out", settings, env={**ENV, name: value})
    ran = "1" if name == "OMP_THREAD_LIMIT" else "2"
    assert {row["threads"] for row in cells} == {ran}
    assert json.loads((tmp_path / "out" / "env.json").read_text())["threads"] == int(ran)
    if ran == "1":
        done = run(config, tmp_path / "axis", {**settings, "sweep.threads": [1, 2]}, env={**ENV, name: value})
        assert_refused(done, "sweep.threads has 2", "OMP_THREAD_LIMIT allows 1", out=tmp_path / "axis")


def test_a_small_stack_is_refused(config, tmp_path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, 512 << 10))
    assert_refused(run(config, tmp_path / "out", preexec_fn=limit), "stack has 512 KiB", "ulimit -s 8192", out=tmp_path / "out")
    for size in ("600", "300000B"):
        done = run(config, tmp_path / "out", env={**ENV, "OMP_STACKSIZE": size})
        assert_refused(done, "a thread's stack has", "OMP_STACKSIZE", out=tmp_path / "out")
    succeeded(run(config, tmp_path / "out", {"sweep.seq_len": 8}, env={**ENV, "OMP_STACKSIZE": "4M"}))


COARSE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec* t) {
  int (*real)(clockid_t, struct timespec*) = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(id, t);
  t->tv_nsec -= t->tv_nsec % 10000000;
  return result;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_coarse_clock_is_refused(config, tmp_path):
    (tmp_path / "clock.c").write_text(COARSE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c", "-ldl"], check=True)
    done = run(config, tmp_path / "out", env={**ENV, "LD_PRELOAD": str(tmp_path / "clock.so")})
    # 10000 us, or a multiple where other programs left it no time between two steps.
    assert_refused(done, "the clock moves in steps of ", "0000 us; times need one of at most 10 us", out=tmp_path / "out")


def test_a_pipe_that_nobody_writes_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    for arguments in (["run", tmp_path / "pipe.toml"], ["tables", "--model", tmp_path / "pipe.toml"]):
        assert_refused(kvlab(*arguments, timeout=20), "pipe.toml: it is not a regular file")


def test_a_full_terminal_is_an_error():
    with open("/dev/full", "w") as full:
        done = kvlab("list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr == "kvlab: cannot write to standard output\n"
