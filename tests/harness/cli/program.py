"""The program as its users call it, and what its tests share."""

import csv
import ctypes
import json
import os
import re
import resource
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
DATA = Path(os.environ.get("KVLAB_DATA", HOME.parent / "shared" / "data"))
TIMEOUT_S = 1000  # for hangs alone
ENV = {**os.environ, "OMP_WAIT_POLICY": "passive", "KVLAB_PYTHON": ""}
Q_HEADS, KV_HEADS, HEAD_DIM, TOKENS, REPETITIONS, STEPS = 4, 2, 16, 64, 5, 4
CONFIG = f"""
title = "tiny"
experiment = ["decode", "growth"]
threads = 1
model = {{ q_heads = {Q_HEADS}, kv_heads = {KV_HEADS}, head_dim = {HEAD_DIM} }}
measure = {{ repetitions = {REPETITIONS}, retries = 0, steps = {STEPS}, cold_steps = 0 }}
[sweep]
variants = ["contiguous", "contiguous/f16", "doubling", "doubling(read=copy)", "concat", "concat/f16"]
seq_len = [32, {TOKENS}]
"""


class Row(dict):
    """A line of a results table. A column that does not apply to the run is absent, and reads as empty."""

    def __missing__(self, column):
        assert column in known_columns(), f"no table has a column {column}"
        return ""


def words(arguments):
    """A command line; a dict in it is settings: {"measure.steps": 4} is --set measure.steps=4."""
    for argument in arguments:
        if isinstance(argument, dict):
            for key, value in argument.items():
                yield from ("--set", f"{key}={value if isinstance(value, (str, Path)) else json.dumps(value)}")
        else:
            yield str(argument)


def kvlab(*args, **options):
    return subprocess.run(
        [PROGRAM, *words(args)],
        **{"capture_output": True, "text": True, "timeout": TIMEOUT_S, "env": ENV, **options},
    )


def run(config, out, *args, **options):
    return kvlab("run", config, "--out", out, "--no-plots", *args, **options)


def convert(model, tokenizer, folder):
    """Makes a folder of a llama2.c model."""
    command = [HOME / ".venv/bin/python", HOME / "harness/model/model_packages.py", "convert", model, tokenizer, folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=ENV)


def start(config, out, *args, **options):
    """A run in the background."""
    command = [PROGRAM, "run", config, "--out", out, "--no-plots", *words(args)]
    return subprocess.Popen(command, **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": ENV, **options})


def succeeded(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert "internal error" not in done.stderr, done.stderr
    return done


def counted(library, words, kill=0, full=0, home=HOME, letters="ocwrs"):
    """A command, killed at its so many-th file operation, or on a disk that is full from there on; and a letter for each of them."""
    with tempfile.NamedTemporaryFile() as counter:
        env = {**ENV, "LD_PRELOAD": str(library), "FILES_COUNTER": counter.name, "FILES_COUNTED": letters,
               "FILES_KILL": str(kill), "FILES_FULL": str(full), "ASAN_OPTIONS": "verify_asan_link_order=0", "KVLAB_HOME": str(home)}  # fmt: skip
        done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True, timeout=TIMEOUT_S, start_new_session=True)
        return done, Path(counter.name).read_text()


def cells_of(config, out, *args, **options):
    """The rows of a run that has to succeed."""
    succeeded(run(config, out, *args, **options))
    return table(out / "cells.csv")


def unmeasured_cells(config, out, *args, **options):
    """The rows of a run that has to say that it measured none of them."""
    done = run(config, out, *args, **options)
    assert done.returncode == 2 and re.search(r"^kvlab: none of \d+ cells was measured; the first, '", done.stderr, re.M), done.stderr
    return table(out / "cells.csv")


def results_of(config, settings={}, **options):
    """A fixture: the folder of a run that a file's tests look at. `config` is a file, or the text of one."""
    @pytest.fixture(scope="module")
    def results(tmp_path_factory):
        top = tmp_path_factory.mktemp("results")
        file = config if isinstance(config, Path) else top / "config.toml"
        if file is not config:
            file.write_text(config)
        succeeded(run(file, top / "run", settings, **options))
        return top / "run"

    return results


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [Row(row) for row in csv.DictReader(file)]


@lru_cache
def known_columns():
    return {line.split()[0] for line in kvlab("list", "columns").stdout.splitlines() if line.startswith(" ")}


def by_variant(rows):
    """Without the A/A test, which has the baseline's name."""
    return {row["variant"]: row for row in rows if row["verdict"] != "aa_test"}


def write_table(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_trace(path, requests, ms, output_tokens):
    """Requests of 1,000 tokens, so many milliseconds apart, that share their first block of 512."""
    path.write_text("".join(json.dumps({"timestamp": ms * i, "input_length": 1000, "output_length": output_tokens, "hash_ids": [0, i + 1]}) + "\n"
                            for i in range(requests)))
    return path


def change_row(folder, **changes):
    """Changes the first row of cells.csv that was compared with a baseline; the row's key."""
    rows = table(folder / "cells.csv")
    row = next(row for row in rows if row["verdict"] in ("faster", "slower", "ambiguous", "unreliable"))
    row.update(changes)
    write_table(folder / "cells.csv", rows)
    return row["cell"]


def change_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=1))


def change_environment(folder, section=None, **changes):
    """Changes what env.json says, or a section of it."""
    change_json(folder / "env.json", lambda env: (env[section] if section else env).update(changes))


def cells_by_key(folder):
    rows = table(folder / "cells.csv")
    assert len({row["cell"] for row in rows}) == len(rows)
    return {row["cell"]: row for row in rows}


def lines_by_cell(path):
    lines = {}
    for line in path.read_text().splitlines()[1:]:
        lines.setdefault(line.split(",")[0], []).append(line)
    return lines


def assert_complete(folder, whole):
    """The files and cells of an uninterrupted run, each once, and as many lines of each cell."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert json.loads((folder / "env.json").read_text())["finished"]
    assert cells_by_key(folder).keys() == cells_by_key(whole).keys()
    count = lambda table: {cell: len(lines) for cell, lines in lines_by_cell(table).items()}
    for timed in (name for name in ("samples.csv", "growth.csv") if (whole / name).exists()):
        assert count(folder / timed) == count(whole / timed), timed


def gpu_is_there():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


without_gpu = pytest.mark.skipif(gpu_is_there(), reason="this machine has a GPU")


def assert_refused(done, *parts, lines=1, out=None):
    """Exit 2, and one line that says all of the parts; a spec's mistake shows the place in two more. Nothing is written to `out`."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    text = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(text) == lines, done.stderr
    assert text[0].startswith("kvlab: ")
    for part in parts:
        assert part in text[0], done.stderr
    assert done.stdout == ""
    assert out is None or not out.exists()


def no_file_beyond(size):
    """A disk that is full after so many bytes, as far as one program sees it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def skip_where_openmp_needs_a_file(done):
    """Clang's runtime keeps 1 KiB in shared memory, which is a file, and does not start without."""
    if "Can't set size of SHM" in done.stderr:
        # A later process of the same number would read what is left of that file, and die of it.
        for left in Path("/dev/shm").glob("__KMP_REGISTERED_LIB_*"):
            if left.stat().st_size == 0 and not Path("/proc", left.name.split("_")[-2]).exists():
                left.unlink()
        pytest.skip("Clang's OpenMP runtime does not start where no file may have 1 KiB")
