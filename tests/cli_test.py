"""The program as its users meet it: an ordinary run, one that is killed, and one that is given nonsense."""

import ctypes
import csv
import json
import math
import os
import pty
import random
import re
import resource
import select
import signal
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
DATA = Path(os.environ.get("KVLAB_DATA", HOME.parent / "shared" / "data"))
TIMEOUT_S = 300  # for the sanitizers' sake
ENV = {**os.environ, "OMP_WAIT_POLICY": "passive", "KVLAB_PYTHON": ""}

ISSUE_COLUMNS = """variant device threads experiment phase workload layers q_heads kv_heads head_dim batch seq_len
status reason kernel bytes_payload bytes_metadata bytes_slack bytes_workspace_peak bytes_copied bytes_predicted
bytes_device_peak rss_peak_bytes append_p50_us attend_p50_us step_p50_us step_p90_us step_p99_us step_max_us step_ci_low_us
step_ci_high_us cold_attend_p50_us read_gbps ceiling_gbps ceiling_share err_max_abs err_rel_l2 err_cosine
err_attn_kl err_codec_rel_l2 err_retention_rel_l2 err_kernel_rel_l2""".split()

COLD_COLUMNS = """cold_attend_p50_us cold_read_gbps cold_ceiling_gbps cold_ceiling_share cold_bound cold_bound_us
cold_bound_share cold_ratio_p50""".split()
Q_HEADS, KV_HEADS, HEAD_DIM, TOKENS, REPETITIONS, STEPS = 4, 2, 16, 64, 5, 4
ROW_BYTES = 2 * KV_HEADS * HEAD_DIM * 4  # K and V of one token in f32
CONFIG = f"""
title = "tiny"
experiment = ["decode", "growth"]
threads = 1
[model]
q_heads = {Q_HEADS}
kv_heads = {KV_HEADS}
head_dim = {HEAD_DIM}
[sweep]
variants = ["contiguous", "contiguous/f16", "doubling", "doubling(read=copy)", "concat", "concat/f16"]
seq_len = [32, {TOKENS}]
[measure]
repetitions = {REPETITIONS}
steps = {STEPS}
cold_steps = 0
"""


def kvlab(*args, **options):
    return subprocess.run(
        [PROGRAM, *map(str, args)],
        **{"capture_output": True, "text": True, "timeout": TIMEOUT_S, "env": ENV, **options},
    )


def run(config, out, *args, **options):
    return kvlab("run", config, "--out", out, "--no-plots", *args, **options)


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def cells_by_key(folder):
    rows = table(folder / "cells.csv")
    assert len({row["cell"] for row in rows}) == len(rows)
    return {row["cell"]: row for row in rows}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def results(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "run"
    done = run(config, folder, "--set", "decode.seq_len=64")
    assert done.returncode == 0, done.stderr
    return folder


# --- An ordinary run ---------------------------------------------------------------------------------------


def test_list_names_every_part_with_its_help():
    done = kvlab("list")
    assert done.returncode == 0 and done.stderr == ""
    for word in "contiguous concat doubling f32 f16 full gaussian outliers sinks heavy local dump model".split():
        assert re.search(rf"^  {word} +\S", done.stdout, re.M), word
    assert re.search(r"^    read +view\|copy +default view +\S", done.stdout, re.M)
    for metric in "err_max_abs err_rel_l2 err_cosine err_attn_kl".split():
        assert metric in done.stdout
    assert "configs/quickstart.toml" in done.stdout


def test_cells_have_every_column_and_succeed(results):
    cells = cells_by_key(results)
    # Six variants and the null A/B in each block; decode at one length, growth at two.
    assert len(cells) == 3 * 7
    for row in cells.values():
        assert set(ISSUE_COLUMNS) <= set(row)
        assert (row["status"], row["reason"], row["device"], row["threads"]) == ("ok", "", "cpu", "1")
        shape = [int(row[c]) for c in ("layers", "q_heads", "kv_heads", "head_dim", "batch")]
        assert shape == [1, Q_HEADS, KV_HEADS, HEAD_DIM, 1]
        assert row["phase"] == "decode" and row["workload"] == "gaussian" and row["kernel"]


def test_times_are_ordered(results):
    for row in cells_by_key(results).values():
        p50, p90, p99, most = (float(row[f"step_{c}_us"]) for c in ("p50", "p90", "p99", "max"))
        assert 0 < p50 <= p90 <= p99 <= most
        assert float(row["step_ci_low_us"]) <= float(row["step_ci_high_us"])
        assert 0 < float(row["attend_p50_us"]) <= p99
        assert [row[c] for c in COLD_COLUMNS] == [""] * len(COLD_COLUMNS)
        if row["experiment"] == "decode":
            assert_share(row, "")


def assert_share(row, kind):
    read, ceiling, took = (float(row[kind + c]) for c in ("read_gbps", "ceiling_gbps", "attend_p50_us"))
    assert read > 0 and float(row[kind + "ceiling_share"]) == pytest.approx(read / ceiling, rel=1e-6)
    adds = int(row["multiply_adds"])
    assert adds == 2 * int(row["q_heads"]) * int(row["seq_len"]) * int(row["head_dim"])
    compute, memory = 1e6 * adds / float(row["multiply_add_peak_per_s"]), took * read / ceiling
    assert row[kind + "bound"] == ("compute" if compute > memory else "memory")
    assert float(row[kind + "bound_us"]) == pytest.approx(max(compute, memory), rel=1e-6)
    assert float(row[kind + "bound_share"]) == pytest.approx(max(compute, memory) / took, rel=1e-6)


def test_cold_reads_have_columns_and_samples_of_their_own(config, tmp_path):
    large = ["--set", "model.q_heads=8", "--set", "model.kv_heads=8", "--set", "model.head_dim=128"]
    done = run(config, tmp_path / "out", *large, "--set", 'experiment="decode"', "--set", "sweep.seq_len=512",
               "--set", 'sweep.variants=["contiguous", "contiguous/q8_0"]', "--set", "measure.null_ab=false",
               "--set", "measure.cold_steps=3", "--set", "measure.repetitions=2")
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "out" / "cells.csv")
    for row in rows:
        assert_share(row, "")
        assert_share(row, "cold_")
    samples = table(tmp_path / "out" / "samples.csv")
    cold = lambda row, repetition: median(float(r["attend_us"]) for r in samples if r["cell"] == row["cell"]
                                          and (r["kind"], r["repetition"]) == ("cold", repetition))  # noqa: E731
    f32, q8_0 = (median(cold(row, repetition) for repetition in "01") for row in rows)
    assert f32 > 0 and rows[0]["cold_ratio_p50"] == ""
    assert float(rows[1]["cold_ratio_p50"]) == pytest.approx(q8_0 / f32, rel=1e-6)
    kinds = Counter((r["kind"], r["repetition"]) for r in samples)
    assert kinds == {("step", "0"): 2 * STEPS, ("step", "1"): 2 * STEPS, ("cold", "0"): 6, ("cold", "1"): 6}


def test_ledger_and_prediction_agree(results):
    for row in cells_by_key(results).values():
        kinds = [int(row[f"bytes_{kind}"]) for kind in ("payload", "metadata", "slack")]
        assert sum(kinds) == int(row["bytes_predicted"])
        assert kinds[0] == int(row["seq_len"]) * ROW_BYTES // (2 if "f16" in row["variant"] else 1)


def test_errors_are_of_the_codec(results):
    for row in cells_by_key(results).values():
        error, codec = float(row["err_rel_l2"]), float(row["err_codec_rel_l2"])
        assert float(row["err_kernel_rel_l2"]) < 1e-5
        assert row["err_retention_rel_l2"] == "0"
        if "f16" in row["variant"]:
            # Half a unit in the last of 11 bits is at most 4.9e-4 a value.
            assert 1e-5 < error < 1e-3 and codec == pytest.approx(error, rel=0.1)
        else:
            assert error < 1e-5 and codec == 0
        assert float(row["err_cosine"]) == pytest.approx(1, abs=1e-6)


def test_concat_copies_quadratically_and_doubling_linearly(results):
    cells = cells_by_key(results)
    for n in (32, TOKENS):
        copied = {v: int(cells[f"growth gaussian b1 s{n} {v}"]["bytes_copied"]) for v in
                  ("contiguous", "doubling", "doubling(read=copy)", "concat", "concat/f16")}
        assert copied["contiguous"] == 0
        assert copied["concat"] == n * (n - 1) // 2 * ROW_BYTES
        assert copied["concat/f16"] == copied["concat"] // 2
        # Growth from 1: every doubling copies what is there, 1 + 2 + 4 + ... < n.
        assert 0 < copied["doubling"] < n * ROW_BYTES
        # Slicing copies all rows at every step, on top of that.
        assert copied["doubling(read=copy)"] == copied["doubling"] + n * (n + 1) // 2 * ROW_BYTES


def test_samples_hold_every_step(results):
    cells = cells_by_key(results)
    steps = Counter(row["cell"] for row in table(results / "samples.csv") if row["kind"] == "step")
    growth = Counter(row["cell"] for row in table(results / "growth.csv"))
    for key, row in cells.items():
        if row["experiment"] == "decode":
            assert (steps[key], growth[key]) == (REPETITIONS * STEPS, 0)
        else:
            assert (steps[key], growth[key]) == (0, REPETITIONS * int(row["seq_len"]))
    assert set(steps) | set(growth) == set(cells)


def test_growth_keeps_every_step_in_order(results):
    rows = [r for r in table(results / "growth.csv") if r["cell"] == f"growth gaussian b1 s{TOKENS} concat"]
    for repetition in range(REPETITIONS):
        mine = [r for r in rows if r["repetition"] == str(repetition)]
        assert [int(r["token"]) for r in mine] == list(range(1, TOKENS + 1))
        assert [int(r["bytes_payload"]) for r in mine] == [t * ROW_BYTES for t in range(1, TOKENS + 1)]
        assert [int(r["bytes_copied"]) for r in mine] == [t * (t - 1) // 2 * ROW_BYTES for t in range(1, TOKENS + 1)]


def test_environment_says_what_ran(results):
    env = json.loads((results / "env.json").read_text())
    assert env["cpu"]["cores"] >= 1 and env["threads"] == 1 and env["seed"] == 1
    assert env["kvlab"]["version"] and env["compiler"] and env["isa"] in env["isas"]
    assert env["config"]["title"] == "tiny" and env["started"] <= env["finished"]


def test_benchmark_json_is_google_benchmarks(results):
    report = json.loads((results / "benchmark.json").read_text())
    assert {"date", "num_cpus", "library_build_type"} <= set(report["context"])
    repetitions = Counter()
    for entry in report["benchmarks"]:
        assert entry["run_type"] == "iteration" and entry["time_unit"] in ("ns", "us", "ms", "s")
        assert entry["real_time"] > 0 and entry["cpu_time"] > 0 and entry["iterations"] >= 1
        repetitions[entry["name"]] += 1
    assert set(cells_by_key(results)) <= set(repetitions)
    assert set(repetitions.values()) == {REPETITIONS}


def test_the_config_as_run_runs_again(results, tmp_path):
    done = run(results / "config.toml", tmp_path / "again", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "config.toml").read_text() == (results / "config.toml").read_text()
    first, again = cells_by_key(results), cells_by_key(tmp_path / "again")
    assert list(first) == list(again)
    exact = ["status", "kernel", "bytes_predicted", "bytes_copied", "err_rel_l2", "err_attn_kl", "samples"]
    for key in first:
        assert [first[key][c] for c in exact] == [again[key][c] for c in exact]


def test_few_repetitions_give_no_interval(config, tmp_path):
    done = run(config, tmp_path / "out", "--set", "measure.repetitions=2", "--set", "sweep.seq_len=8")
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        assert row["step_ci_low_us"] == row["step_ci_high_us"] == row["ratio_ci_low"] == row["ratio_ci_high"] == ""
        assert row["verdict"] in ("baseline", "null", "ambiguous")
    assert "–" not in done.stdout and "found a difference" not in done.stdout


def test_null_cell_is_the_baseline_again(results):
    cells = cells_by_key(results)
    nulls = [row for row in cells.values() if row["verdict"] == "null"]
    assert len(nulls) == 3
    for row in nulls:
        assert row["cell"] == next(c for c in cells if row["cell"].startswith(c)) + " null"
        assert row["versus"] == row["variant"] == "contiguous"
        assert float(row["ratio_ci_low"]) <= float(row["ratio_p50"]) <= float(row["ratio_ci_high"])


# A length of one, an empty prefill, more steps than tokens, a ragged head size, GQA by 8.
def test_smallest_sizes(config, tmp_path):
    shape = ["--set", "model.q_heads=8", "--set", "model.kv_heads=1", "--set", "model.head_dim=8"]
    done = run(config, tmp_path / "out", "--set", "sweep.seq_len=[1, 2]", "--set", "sweep.batch=[1, 3]", *shape)
    assert done.returncode == 0, done.stderr
    cells = cells_by_key(tmp_path / "out")
    assert len(cells) == 2 * 2 * 2 * 7 and {row["status"] for row in cells.values()} == {"ok"}
    assert {row["samples"] for row in cells.values() if row["seq_len"] == "1"} == {str(REPETITIONS)}


def test_an_experiments_own_table_may_stay_when_it_is_not_run(config, tmp_path):
    text = config.read_text().replace('["decode", "growth"]', '"decode"') + "[growth]\nattend = false\n"
    (tmp_path / "one.toml").write_text(text)
    assert run(tmp_path / "one.toml", tmp_path / "out", "--set", "sweep.seq_len=8").returncode == 0
    assert {row["experiment"] for row in table(tmp_path / "out" / "cells.csv")} == {"decode"}


def test_what_does_not_fit_is_left_out_and_said(config, tmp_path):
    huge = 1 << 24
    done = run(config, tmp_path / "out", "--set", f"sweep.seq_len=[8, {huge}]", "--set", "model.layers=16",
               "--set", "measure.memory_share=0.01")
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        if row["seq_len"] == "8":
            assert row["status"] == "ok"
        else:
            assert row["status"] == "out_of_memory" and "needs" in row["reason"] and row["step_p50_us"] == ""
            assert f"{row['cell']}: out_of_memory: {row['reason']}" in done.stderr
    assert "out_of_memory" in done.stdout


def test_the_largest_sizes_of_all_do_not_fit(config, tmp_path):
    most = {"model.q_heads": 4096, "model.kv_heads": 4096, "model.head_dim": 512, "model.layers": 1024,
            "sweep.batch": 4096, "sweep.seq_len": 1 << 24}
    done = run(config, tmp_path / "out", *[word for key, n in most.items() for word in ("--set", f"{key}={n}")])
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "out" / "cells.csv")
    assert len(rows) == 14 and {row["status"] for row in rows} == {"out_of_memory"}
    assert table(tmp_path / "out" / "samples.csv") == table(tmp_path / "out" / "growth.csv") == []


def test_without_a_terminal_progress_is_plain_lines(config, tmp_path):
    done = run(config, tmp_path / "out", "--set", "sweep.seq_len=8")
    assert [re.sub(", about .*", "", line) for line in done.stderr.splitlines()] == [
        "[1/2] decode gaussian, batch 1, 8 tokens",
        "[2/2] growth gaussian, batch 1, 8 tokens",
    ]
    assert "\r" not in done.stdout and "\033" not in done.stdout


def test_a_terminal_gets_a_bar(config, tmp_path):
    master, slave = pty.openpty()
    command = [PROGRAM, "run", str(config), "--out", str(tmp_path / "out"), "--no-plots"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env=ENV)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], TIMEOUT_S)[0]:
        try:
            shown += os.read(master, 4096)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert child.wait() == 0
    text = shown.decode()
    assert "░" in text and "█" in text and "\r\033[K" in text and re.search(r"about \d+:\d\d left", text)
    assert text.endswith("\r\033[K")  # gone before the summary


# --- Killed, stopped, and gone on with ---------------------------------------------------------------------


def lines_by_cell(path):
    lines = {}
    for line in path.read_text().splitlines()[1:]:
        lines.setdefault(line.split(",")[0], []).append(line)
    return lines


def assert_complete(folder, whole):
    """Has the same cells as an uninterrupted run, each once, and samples of exactly these."""
    assert set(cells_by_key(folder)) == set(cells_by_key(whole))
    for name in ("samples.csv", "growth.csv"):
        count = lambda where: {cell: len(lines) for cell, lines in lines_by_cell(where / name).items()}
        assert count(folder) == count(whole)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert json.loads((folder / "env.json").read_text())["finished"]


@pytest.fixture(scope="module")
def uninterrupted(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    started = time.monotonic()
    assert run(config, folder).returncode == 0
    return folder, time.monotonic() - started


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


def gpu_is_there():
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    except OSError:
        return False


without_gpu = pytest.mark.skipif(gpu_is_there(), reason="this machine has a GPU")


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


# --- Nonsense ----------------------------------------------------------------------------------------------


def assert_refused(done, *parts, lines=1):
    """Exit 2, and one line that says all of the parts; a spec's mistake shows the place in two more."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    text = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(text) == lines, done.stderr
    assert text[0].startswith("kvlab: ")
    for part in parts:
        assert part in text[0], done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "setting, parts",
    [
        ("tpyo=1", ["tpyo is not a key", "known: ", "experiment"]),
        ("sweep.lenghts=1", ["sweep.lenghts is not a key", "seq_len"]),
        ("decode.lenghts=1", ["decode.lenghts is not a key"]),
        ("model.heads=1", ["model.heads is not a key", "q_heads"]),
        ("sweep.seq_len=0", ["sweep.seq_len must be from 1 to", "not 0"]),
        ("sweep.seq_len=-5", ["sweep.seq_len must be from 1 to", "not -5"]),
        ("sweep.seq_len=99999999999", ["sweep.seq_len must be from 1 to"]),
        ("sweep.seq_len=99999999999999999999999", ["sweep.seq_len must be a whole number"]),
        ("sweep.seq_len=1.5", ["sweep.seq_len must be a whole number"]),
        ("sweep.seq_len=many", ["sweep.seq_len must be a whole number"]),
        ("sweep.seq_len=[]", ["sweep.seq_len is an empty axis", "at least one"]),
        ("sweep.seq_len=[8, 8]", ["sweep.seq_len names 8 twice"]),
        ("sweep.batch=[]", ["sweep.batch is an empty axis"]),
        ("sweep.batch=0", ["sweep.batch must be from 1"]),
        ("sweep.workload=[]", ["sweep.workload is an empty axis"]),
        ("sweep.workload=zeros", ["sweep.workload must be among", "gaussian", "not 'zeros'"]),
        ("sweep.workload=dump", ["needs workload.dump"]),
        ("sweep.workload=model", ["needs workload.model"]),
        ("sweep.variants=[]", ["sweep.variants is an empty axis"]),
        ("sweep.variants=3", ["sweep.variants must be text"]),
        ('sweep.variants=["concat", "concat/f32"]', ["sweep.variants names 'concat' twice"]),
        ("sweep=3", ["sweep must be a table"]),
        ("experiment=growht", ["experiment must be one of decode, growth", "not 'growht'"]),
        ('experiment=["decode", "decode"]', ["experiment names decode twice"]),
        ("experiment=[]", ["experiment is an empty axis"]),
        ("model.q_heads=3", ["model.q_heads (3) must be a multiple of kv_heads (2)"]),
        ("model.q_heads=0", ["model.q_heads must be from 1"]),
        ("model.head_dim=12", ["head_dim must be a multiple of 8", "12"]),
        ("model.head_dim=100000", ["model.head_dim must be from 8 to 512"]),
        ("model.layers=-1", ["model.layers must be from 1"]),
        ("model.preset=gpt-9", ["[model] needs one of"]),
        ("measure.repetitions=0", ["measure.repetitions must be from 1"]),
        ("measure.attend=3", ["measure.attend must be true or false"]),
        ("measure.allocator=lukewarm", ["measure.allocator must be one of warm, fresh"]),
        ("measure.memory_share=nan", ["measure.memory_share must be a number"]),
        ("seed=-1", ["seed must be from 0"]),
        ("isa=avx9", ["avx9"]),
        ("workload.model=only.bin", ["only.bin", "does not exist"]),
        ("workload.tokenizer=tests/cli_test.py", ["[workload] needs all three of model, tokenizer and text"]),
        ("nonsense", ["--set nonsense: expected key=value"]),
        ("=3", ["--set =3: expected key=value"]),
        ("sweep.seq_len.x=3", ["--set sweep.seq_len.x", "is not a table"]),
    ],
)
def test_a_setting_is_refused(config, tmp_path, setting, parts):
    done = run(config, tmp_path / "out", "--set", setting)
    assert_refused(done, *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "spec, parts",
    [
        ("conact", ["no placement is called 'conact'", "did you mean 'concat'"]),
        ("contiguous/f8", ["no codec or retention is called 'f8'"]),
        ("doubling(raed=copy)", ["raed"]),
        ("doubling(read=maybe)", ["maybe", "view"]),
        ("doubling(read=copy", ["doubling(read=copy"]),
        ("", []),
    ],
)
def test_a_variant_is_refused_with_its_place(config, tmp_path, spec, parts):
    done = run(config, tmp_path / "out", "--set", f'sweep.variants=["contiguous", "{spec}"]')
    assert done.returncode == 2 and "Traceback" not in done.stderr
    message = done.stderr.splitlines()
    assert message[0].startswith("kvlab: ") and "sweep.variants" in message[0]
    assert all(part in done.stderr for part in parts), done.stderr
    assert message[-1].strip() == "^"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text, parts",
    [
        ("a = \nb = 1\n", [":1: "]),
        ("title = 'x'\n[sweep\n", [":2: "]),
        ("title = 3\n", [":1: title must be text"]),
        ("", ["experiment is missing"]),
        ('experiment = "decode"\n', ["sweep.variants is missing"]),
        ('experiment = "decode"\n[sweep]\nvariants = "concat"\n', ["sweep.seq_len is missing"]),
        ('experiment = "decode"\n[sweep]\nvariants = "concat"\nseq_len = 8\n', ["[model] needs one of"]),
        ('experiment = "decode"\n[sweep]\nvariants = "concat"\nseq_len = 8\n[model]\npreset = "gpt-9"\n',
         ["gpt-9", "llama-3-8b"]),
        ("\xff\x00", [":1: "]),
        (CONFIG + "[[decode]]\n[[decode]]\nseq_len = [8, 32]\n",
         ["two [[decode]] tables have the cell 'decode gaussian b1 s32 contiguous'", "give it to one of them"]),
        (CONFIG + "[[decode]]\n[[decode]]\nseq_length = 8\n", ["decode[1].seq_length", "is not a key"]),
    ],
)
def test_a_config_is_refused_at_its_line(tmp_path, text, parts):
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    done = run(path, tmp_path / "out")
    assert_refused(done, *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args, parts",
    [
        ([], ["subcommand is required"]),
        (["frobnicate"], ["--help"]),
        (["run"], ["config is required"]),
        (["run", "no-such.toml"], ["config 'no-such.toml' does not exist"]),
        (["run", "/"], ["config '/' is a folder"]),
        (["run", "configs/ci.toml", "--bogus"], ["--bogus"]),
        (["run", "configs/ci.toml", "--threads", "0"], ["--threads"]),
        (["run", "configs/ci.toml", "--threads", "many"], ["--threads"]),
        (["run", "configs/ci.toml", "--seed", "-1"], ["--seed"]),
        (["run", "configs/ci.toml", "--isa", "avx9"], ["avx9"]),
        (["run", "configs/ci.toml", "--device", "tpu"], ["no device 'tpu'", "cpu, cuda"]),
        pytest.param(["run", "configs/ci.toml", "--device", "cuda"], ["no GPU can be used"], marks=without_gpu),
        (["run", "configs/ci.toml", "--resume"], ["--resume needs --out"]),
        (["run", "configs/ci.toml", "--model", "nope.bin"], ["nope.bin", "does not exist"]),
        (["eval", "--variants", "concat", "--out", "x"], ["dump is required"]),
    ],
)
def test_a_command_line_is_refused(tmp_path, args, parts):
    assert_refused(kvlab(*args, cwd=tmp_path), *parts)
    assert list(tmp_path.iterdir()) == []


# --- Where results cannot go -------------------------------------------------------------------------------


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
    assert run(config, tmp_path / "empty", "--set", "sweep.seq_len=8").returncode == 0


@pytest.mark.parametrize("out", ["/proc/kvlab", "/sys/kvlab", "/dev/full/x", "/dev/null"])
def test_out_is_refused_where_nothing_can_be_made(config, out):
    assert_refused(run(config, out), out)


def no_file_beyond(size):
    """A disk that is full after so many bytes, as far as one program sees it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [0, 100, 700, 900])
def test_a_disk_full_from_the_start_leaves_nothing(config, tmp_path, size):
    done = run(config, tmp_path / "out", preexec_fn=no_file_beyond(size))
    assert_refused(done, "cannot write", "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_keeps_what_is_finished(config, uninterrupted, tmp_path):
    whole, _ = uninterrupted
    folder = tmp_path / "out"
    # growth.csv is the largest: it no longer fits somewhere in the last two blocks.
    size = (whole / "growth.csv").stat().st_size // 2
    done = run(config, folder, preexec_fn=no_file_beyond(size))
    assert_refused(done, "cannot write", "growth.csv")
    before = lines_by_cell(folder / "cells.csv")
    assert before and len(before) < len(cells_by_key(whole))
    assert (folder / "growth.csv").read_bytes().endswith(b"\n")
    assert run(config, folder, "--resume").returncode == 0
    assert_complete(folder, whole)
    after = lines_by_cell(folder / "cells.csv")
    assert all(after[cell] == line for cell, line in before.items())


def test_a_full_terminal_is_an_error():
    with open("/dev/full", "w") as full:
        done = kvlab("list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr == "kvlab: cannot write to standard output\n"


# --- eval: a user's own tensors ----------------------------------------------------------------------------

PACK = {"F32": "f", "F16": "e"}


def encode(values, dtype):
    if dtype == "BF16":  # the upper half of an f32
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{PACK[dtype]}", *values)


def decode(data, dtype):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(PACK[dtype])}{PACK[dtype]}", data))


def write_tensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, payload) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    return {name: (t["shape"], decode(data[slice(*t["data_offsets"])], t["dtype"])) for name, t in header.items()
            if name != "__metadata__"}


LAYERS, N = 2, 19


def make_dump(path, dtype, q_heads=4, kv_heads=2, dim=8, n=N):
    """Writes a random dump; returns what its values are once rounded to the dtype."""
    draw = random.Random(f"{dtype} {q_heads} {kv_heads}")
    tensors, values = {}, {}
    for name, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads)):
        data = encode([draw.gauss(0, 1) for _ in range(LAYERS * heads * n * dim)], dtype)
        tensors[name] = (dtype, [LAYERS, heads, n, dim], data)
        values[name] = decode(data, dtype)
    write_tensors(path, tensors)
    return values


def causal_attention(values, q_heads=4, kv_heads=2, dim=8, n=N):
    """FP64 by the formula, one query at a time: [layers, q_heads, n, dim]."""
    def row(name, heads, layer, head, token):
        at = ((layer * heads + head) * n + token) * dim
        return values[name][at : at + dim]

    out = []
    for layer in range(LAYERS):
        for head in range(q_heads):
            kv = head // (q_heads // kv_heads)
            for token in range(n):
                q = row("q", q_heads, layer, head, token)
                scores = [math.fsum(a * b for a, b in zip(q, row("k", kv_heads, layer, kv, t))) / math.sqrt(dim)
                          for t in range(token + 1)]
                weights = [math.exp(s - max(scores)) for s in scores]
                rows = [row("v", kv_heads, layer, kv, t) for t in range(token + 1)]
                out += [math.fsum(w * r[c] for w, r in zip(weights, rows)) / math.fsum(weights) for c in range(dim)]
    return out


def relative_l2(got, want):
    difference = math.fsum((a - b) ** 2 for a, b in zip(got, want, strict=True))
    return math.sqrt(difference / math.fsum(b * b for b in want))


@pytest.mark.parametrize("dtype, prompt", [("F32", 0), ("F32", 1), ("F32", 7), ("F32", N), ("F16", 5), ("BF16", 5)])
def test_eval_agrees_with_an_independent_fp64(tmp_path, dtype, prompt):
    values = make_dump(tmp_path / "dump.safetensors", dtype)
    specs = "concat/f32 ; contiguous;doubling(read=copy); contiguous/f16"
    done = kvlab("eval", tmp_path / "dump.safetensors", "--variants", specs, "--prompt", prompt, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    want = causal_attention(values)
    outputs = read_tensors(tmp_path / "out" / "outputs.safetensors")
    cells = {row["variant"]: row for row in table(tmp_path / "out" / "cells.csv")}
    assert set(outputs) == set(cells) == {"concat", "contiguous", "doubling(read=copy)", "contiguous/f16"}
    for spec, (shape, got) in outputs.items():
        assert shape == [LAYERS, 4, N, 8]
        error = relative_l2(got, want)
        # A dump in 16 bits is exact in f16 where it was f16, and nearly so where it was bf16.
        assert error < 1e-5 or (spec == "contiguous/f16" and dtype == "F32" and error < 1e-3)
        row = cells[spec]
        assert row["status"] == "ok" and [row[c] for c in ("layers", "q_heads", "kv_heads", "head_dim", "seq_len")] == [
            str(LAYERS), "4", "2", "8", str(N)]
        assert float(row["err_rel_l2"]) == pytest.approx(error, rel=1e-3, abs=1e-12)
        assert int(row["bytes_payload"]) == LAYERS * 2 * 2 * N * 8 * (2 if "f16" in spec else 4)


@pytest.mark.parametrize("q_heads, kv_heads, dim", [(3, 3, 8), (6, 1, 16)])
def test_eval_of_mha_and_mqa(tmp_path, q_heads, kv_heads, dim):
    values = make_dump(tmp_path / "d", "F32", q_heads, kv_heads, dim)
    assert kvlab("eval", tmp_path / "d", "--variants", "doubling", "--prompt", "4", "--out", tmp_path / "o").returncode == 0
    shape, got = read_tensors(tmp_path / "o" / "outputs.safetensors")["doubling"]
    assert shape == [LAYERS, q_heads, N, dim]
    assert relative_l2(got, causal_attention(values, q_heads, kv_heads, dim)) < 1e-5


def good_tensors(**changes):
    shapes = {"q": [1, 2, 3, 8], "k": [1, 1, 3, 8], "v": [1, 1, 3, 8], **changes}
    return {n: ("F32", s, encode([0.5] * math.prod(s), "F32")) for n, s in shapes.items() if s}


def one_value(value):
    tensors = good_tensors()
    tensors["v"] = ("F32", [1, 1, 3, 8], encode([0.5] * 20 + [value] + [0.5] * 3, "F32"))
    return tensors


def raw_file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def lying(**changes):
    """A header of three tensors in 192 + 96 + 96 bytes, with one thing changed in q."""
    header = {name: {"dtype": "F32", "shape": [1, heads, 3, 8], "data_offsets": [at, at + heads * 96]}
              for name, heads, at in (("q", 2, 0), ("k", 1, 192), ("v", 1, 288))}
    header["q"].update(changes)
    return raw_file(header, bytes(384))


@pytest.mark.parametrize(
    "make, parts",
    [
        (lambda: b"", ["dump"]),
        (lambda: b"short", ["dump"]),
        (lambda: struct.pack("<Q", 1 << 60) + b"{}", ["header"]),
        (lambda: raw_file(b"{not json"), ["header"]),
        (lambda: raw_file(b"[" * 100000), ["header"]),
        (lambda: raw_file({}), ["has no tensor", "q"]),
        (lambda: lying(data_offsets=[0, 10**9]), ["q"]),
        (lambda: lying(data_offsets=[192, 0]), ["q"]),
        (lambda: lying(data_offsets=[-8, 184]), ["q"]),
        (lambda: lying(shape=[1, 2, 3, 1 << 62]), ["q"]),
        (lambda: lying(shape=[1, 2, 3, -8]), ["q"]),
        (lambda: lying(shape="all"), ["q"]),
        (lambda: lying(dtype="F8_E4M3"), ["q"]),
        (lambda: lying(dtype=3), ["q"]),
        (lambda: good_tensors(v=None), ["has no tensor", "v"]),
        (lambda: good_tensors(q=[1, 2, 3]), ["q", "[layers, heads, tokens, head_dim]"]),
        (lambda: good_tensors(k=[1, 1, 4, 8]), ["k", "v", "same shape"]),
        (lambda: good_tensors(q=[1, 3, 3, 8], k=[1, 2, 3, 8], v=[1, 2, 3, 8]), ["no multiple"]),
        (lambda: good_tensors(q=[1, 2, 3, 12], k=[1, 1, 3, 12], v=[1, 1, 3, 12]), ["head_dim 12", "multiple of 8"]),
        (lambda: good_tensors(q=[1, 2, 3, 1024], k=[1, 1, 3, 1024], v=[1, 1, 3, 1024]), ["head_dim 1024", "512"]),
        (lambda: one_value(math.nan), ["v[0, 0, 2, 4] is NaN", "finite"]),
        (lambda: one_value(-math.inf), ["v[0, 0, 2, 4] is infinite"]),
    ],
)
@pytest.mark.parametrize("command", ["eval", "run"])
def test_a_dump_is_refused(config, tmp_path, command, make, parts):
    path = tmp_path / "dump"
    content = make()
    path.write_bytes(content) if isinstance(content, bytes) else write_tensors(path, content)
    if command == "eval":
        done = kvlab("eval", path, "--variants", "concat", "--out", tmp_path / "out")
    else:
        done = run(config, tmp_path / "out", "--set", f"workload.dump={path}")
    assert_refused(done, str(path), *parts)
    assert not (tmp_path / "out").exists()


def test_every_truncation_of_a_dump_is_refused(tmp_path):
    write_tensors(tmp_path / "whole", good_tensors())
    whole = (tmp_path / "whole").read_bytes()
    for size in range(0, len(whole), 29):
        (tmp_path / "cut").write_bytes(whole[:size])
        assert_refused(kvlab("eval", tmp_path / "cut", "--variants", "concat", "--out", tmp_path / "out"), "cut")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args, parts",
    [
        (["--variants", ""], ["--variants is empty"]),
        (["--variants", " ; "], ["--variants is empty"]),
        (["--variants", "concat;concat/f32"], ["'concat' twice"]),
        (["--variants", "concat", "--prompt", "20"], ["--prompt 20", "19 tokens"]),
        (["--variants", "concat", "--prompt", "-1"], ["--prompt"]),
        (["--variants", "concat", "--isa", "avx9"], ["avx9"]),
        pytest.param(["--variants", "concat", "--device", "cuda"], ["no GPU can be used"], marks=without_gpu),
        (["--variants", "concat", "--out", "/proc/x"], ["/proc/x"]),
    ],
)
def test_eval_is_refused(tmp_path, args, parts):
    make_dump(tmp_path / "dump", "F32")
    out = [] if "--out" in args else ["--out", tmp_path / "out"]
    assert_refused(kvlab("eval", tmp_path / "dump", *args, *out), *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [0, 500, 2000])
def test_eval_on_a_full_disk_leaves_nothing(tmp_path, size):
    make_dump(tmp_path / "dump", "F32")
    done = kvlab("eval", tmp_path / "dump", "--variants", "concat", "--out", tmp_path / "out", preexec_fn=no_file_beyond(size))
    assert_refused(done, "cannot write")
    assert not (tmp_path / "out").exists()


def test_eval_overwrites_nothing(tmp_path):
    make_dump(tmp_path / "dump", "F32")
    command = ["eval", tmp_path / "dump", "--variants", "concat", "--out", tmp_path / "out"]
    assert kvlab(*command).returncode == 0
    before = (tmp_path / "out" / "cells.csv").read_bytes()
    assert_refused(kvlab(*command), "already holds results")
    assert (tmp_path / "out" / "cells.csv").read_bytes() == before


# A dump is a workload of `run`, too.
def test_run_on_a_dump(config, tmp_path):
    make_dump(tmp_path / "dump", "F16", q_heads=8, kv_heads=4)
    done = run(config, tmp_path / "out", "--set", f"workload.dump={tmp_path / 'dump'}", "--set", f"sweep.seq_len=[{N}, 20]")
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        assert (row["workload"], row["layers"], row["q_heads"], row["kv_heads"]) == ("dump", "2", "8", "4")
        if row["seq_len"] == "20":
            assert (row["status"], row["reason"]) == ("unsupported", f"workload 'dump' has only {N} tokens")
        else:
            assert row["status"] == "ok" and float(row["err_rel_l2"]) < 1e-5  # f16 values are exact in f16


# --- A real model ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    if not (DATA / "models" / "stories260K.bin").exists():
        pytest.skip(f"no models in {DATA}; KVLAB_DATA names another folder")
    return {"--model": DATA / "models" / "stories260K.bin", "--tokenizer": DATA / "models" / "tok512.bin",
            "--text": DATA / "text" / "tinystories_valid_sample.txt"}


def flat(options):
    return [word for pair in options.items() for word in pair]


def test_run_on_a_real_model(model, config, tmp_path):
    """Named on the command line it is what is measured, whatever the config sweeps over; and it runs again."""
    sweep = ["--set", "sweep.workload=outliers", "--set", "sweep.seq_len=[128, 512, 513]", "--set", 'experiment="decode"']
    done = run(config, tmp_path / "out", *flat(model), *sweep)
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        assert (row["workload"], row["phase"]) == ("model", "decode")
        assert [row[c] for c in ("layers", "q_heads", "kv_heads", "head_dim")] == ["5", "8", "4", "8"]
        if row["seq_len"] == "513":
            assert (row["status"], row["reason"]) == ("unsupported", "workload 'model' has only 512 tokens")
            continue
        assert row["status"] == "ok"
        # Real scores are large, and softmax makes f16's relative errors of them its absolute ones.
        assert 0 < float(row["err_rel_l2"]) < (1e-2 if "f16" in row["variant"] else 1e-5)
        assert float(row["err_kernel_rel_l2"]) < 1e-5
        assert int(row["bytes_payload"]) == 5 * 4 * 8 * 2 * int(row["seq_len"]) * (2 if "f16" in row["variant"] else 4)
    again = run(tmp_path / "out" / "config.toml", tmp_path / "again", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    errors = lambda folder: {key: row["err_rel_l2"] for key, row in cells_by_key(folder).items()}
    assert errors(tmp_path / "again") == errors(tmp_path / "out")


def test_a_text_shorter_than_the_sweep_is_said(model, config, tmp_path):
    (tmp_path / "short.txt").write_text("Once upon a time")
    done = run(config, tmp_path / "out", *flat({**model, "--text": tmp_path / "short.txt"}), "--set", "sweep.seq_len=64")
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        assert row["status"] == "unsupported" and re.fullmatch(r"workload 'model' has only \d+ tokens", row["reason"])


def test_a_model_that_lies_is_refused(model, config, tmp_path):
    whole = model["--model"].read_bytes()
    absurd = struct.pack("<7i", 1 << 30, 1 << 30, 1 << 30, 1, 1, 1 << 30, 1 << 30)
    for content in (b"", whole[:20], whole[:-4], whole + b"x", absurd + whole[28:], struct.pack("<7i", *[-1] * 7)):
        (tmp_path / "bad.bin").write_bytes(content)
        done = run(config, tmp_path / "out", *flat({**model, "--model": tmp_path / "bad.bin"}))
        assert_refused(done, "bad.bin")
    wrong = run(config, tmp_path / "out", *flat({**model, "--tokenizer": DATA / "models" / "tok105.bin"}))
    assert_refused(wrong, "tok105.bin")
    swapped = run(config, tmp_path / "out", *flat({**model, "--tokenizer": model["--model"]}))
    assert_refused(swapped, "stories260K.bin")
    assert not (tmp_path / "out").exists()


# --- Published claims --------------------------------------------------------------------------------------

CLAIMS = """
document = "a paper"
[model]
kv_heads = 2
head_dim = 64
[run.update]
experiment = "growth"
threads = 1
model = { q_heads = 2, kv_heads = 2, head_dim = 32 }
sweep = { variants = ["concat", "doubling"], seq_len = 128 }
measure = { attend = false, repetitions = 5, null_ab = false }
[[claim]]
id = "size"
text = "a size"
where = "Table 1"
quote = "100 tokens | 102.4 KB | 1 MB"
check = "closed form"
bytes = { cache = "contiguous" }
tokens = 100
columns = ["figure_"]
rows = [["102.4 KB"], ["1 MB"]]
published = "{figure_}"
[[claim]]
id = "speed"
text = "a speed"
where = "Table 2"
quote = "in place is faster"
check = "ordering"
published = ">0×"
cells.concat = { run = "update", variant = "concat", metric = "step_us", take = "sum" }
cells.doubling = { run = "update", variant = "doubling", metric = "step_us", take = "sum" }
measured = "concat / doubling"
[[claim]]
id = "gpu"
text = "a GPU"
where = "Table 3"
quote = "8x"
check = "none"
published = "8×"
reason = "no GPU"
"""


@pytest.fixture
def claims(tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(CLAIMS)
    return path


def reproduce(*args, **options):
    return kvlab("reproduce", "--no-plots", *args, **options)


def test_reproduce_prints_and_writes_every_verdict(claims, tmp_path):
    out = tmp_path / "out"
    done = reproduce(claims, "--out", out)
    assert done.returncode == 0, done.stderr
    verdicts = {(row["claim"], row["figure"]): row for row in table(out / "claims.csv")}
    assert [row["verdict"] for row in verdicts.values()] == [
        "reproduced", "contradicted", "reproduced", "not testable here",
    ]  # fmt: skip
    speed = verdicts["speed", ""]
    assert speed["machine"] == "yes"
    assert float(speed["interval_low"]) <= float(speed["measured_value"]) <= float(speed["interval_high"])
    assert "102400 B" not in done.stdout and "102.4 KB" in done.stdout
    assert "4 figures: 2 reproduced, 1 contradicted, 1 not testable here" in done.stdout
    assert "> 100 tokens | 102.4 KB | 1 MB" in (out / "claims.md").read_text()
    summary = (out / "summary.md").read_text()
    assert summary.count("\n| ") == 2 + 4  # a line the source and a line a claim, each under a head
    assert "| paper | 2 | 1 | 1 | a size (1 MB: 1 MB, here 0.1024 MB) |" in summary
    assert (out / "runs" / "paper-update" / "cells.csv").exists()
    assert json.loads((out / "env.json").read_text())["quick"] is False


def test_quick_leaves_out_what_the_machine_decides(claims, tmp_path):
    done = reproduce(claims, "--quick", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [row["claim"] for row in table(tmp_path / "out" / "claims.csv")] == ["size", "size", "gpu"]


def test_one_claim_of_a_file_can_be_named(tmp_path):
    done = reproduce("001/memory-table", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "out" / "claims.csv")
    assert len(rows) == 18 and {row["claim"] for row in rows} == {"memory-table"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["005"], "'005' names no claim file; there are 000-design-answer"),
        (["00"], "'00' names several claim files"),
        (["001/nothing"], "'nothing' is no claim of"),
        (["missing.toml"], "claim file 'missing.toml' does not exist"),
    ],
)
def test_a_name_that_is_none_is_one_line(arguments, message, tmp_path):
    done = reproduce(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_bad_claim_file_is_one_line_with_its_place(claims, tmp_path):
    claims.write_text(CLAIMS.replace('where = "Table 3"', 'were = "Table 3"'))
    done = reproduce(claims, "--out", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "paper.toml:33: [claim.gpu] needs where" in done.stderr, done.stderr


def test_results_are_not_written_over(claims, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    done = reproduce(claims, "--out", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


# --- Tables ------------------------------------------------------------------------------------------------

TWO = "contiguous/f16; paged(block=16)/q8_0"


def tables(*args, **options):
    return kvlab("tables", *args, **options)


def csv_table(*args):
    done = tables("--format", "csv", *args)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


@pytest.fixture
def config_json(tmp_path):
    def write(**facts):
        path = tmp_path / "tiny.json"
        path.write_text(json.dumps({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                    "head_dim": 32, **facts}))
        return path

    return write


def test_tables_are_the_closed_form_and_the_ledgers_count(config_json):
    rows = csv_table("--model", config_json(), "--variants", TWO, "--lengths", "1,100..400", "--batch", 3)
    assert [(row["seq_len"], row["variant"]) for row in rows] == [
        (n, v) for n in ("1", "100", "200", "400") for v in ("contiguous/f16", "paged/q8_0")]
    for row in rows:
        n = int(row["seq_len"])
        values = 2 * 2 * 2 * 32  # of a token: layers, K and V, heads, head_dim
        blocks = 3 * -(-n // 16)
        # q8_0: 34 bytes for 32 values. A block has an entry in its table, one in the free list and a count.
        want = 3 * n * values * 2 if "f16" in row["variant"] else blocks * (16 * values * 34 // 32 + 2 * 3 * 4)
        assert (row["model"], row["status"], int(row["bytes"])) == ("tiny", "measured", want), row
        assert float(row["bytes_per_token"]) == pytest.approx(want / (3 * n))


def test_tables_mark_what_is_computed_only(config_json):
    row_bytes = 2 * 2 * 2 * 32 * 2
    args = ["--model", config_json(), "--variants", "contiguous/f16", "--lengths", "10,11", "--measure", f"{10 * row_bytes}B"]
    assert [row["status"] for row in csv_table(*args)] == ["measured", "computed"]
    shown = tables(*args).stdout
    assert re.search(r"^ *10 +5\.00 KiB$", shown, re.M) and re.search(r"^ *11 +5\.50 KiB\*$", shown, re.M)
    assert "* computed only" in shown


def test_tables_know_windows_latents_and_hybrids(config_json):
    def held(**facts):
        return [int(row["bytes"]) for row in csv_table("--model", config_json(**facts), "--variants", "contiguous/f16",
                                                       "--lengths", "50,5000", "--measure", "1MiB")]

    row = 2 * 2 * 32 * 2  # of a layer and token
    assert held() == [2 * row * 50, 2 * row * 5000]
    assert held(sliding_window=100) == [2 * row * 50, 2 * row * 100]
    assert held(sliding_window=100, sliding_window_pattern=2) == [2 * row * 50, row * 5100]
    assert held(layer_types=["linear_attention", "full_attention"]) == [row * 50, row * 5000]
    assert held(kv_lora_rank=96, qk_rope_head_dim=32) == [2 * 128 * 2 * 50, 2 * 128 * 2 * 5000]
    kivi = csv_table("--model", config_json(sliding_window=100), "--variants", "contiguous/kivi", "--lengths", "100,101")
    assert [cell["status"] for cell in kivi] == ["measured", "unsupported"] and "window" in kivi[1]["reason"]
    latent = csv_table("--model", config_json(kv_lora_rank=96, qk_rope_head_dim=32), "--lengths", "100")
    assert {cell["status"] for cell in latent} == {"computed"}


def test_several_models_are_one_csv_and_several_tables(config_json):
    args = ["--model", f"{config_json()},llama-2-7b", "--variants", "contiguous/f16", "--lengths", "64", "--measure", "0B"]
    assert [(row["model"], row["bytes"]) for row in csv_table(*args)] == [("tiny", str(64 * 512)), ("llama-2-7b", str(32 << 20))]
    assert tables(*args).stdout.count("KV cache of") == 2


def braces_balance(text):
    depth = 0
    for c in re.sub(r"\\[{}]", "", text):
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    return depth == 0


@pytest.mark.parametrize("mode", [[], ["--budget", "1MiB", "--weights", "0B"]])
def test_every_format_has_the_same_cells(config_json, tmp_path, mode):
    specs = "contiguous/f16; contiguous/split(k=q8_0,v=q4_0); contiguous/kivi(bits=2)"
    args = ["--model", config_json(sliding_window=100), "--variants", specs, "--lengths", "64,256", *mode]
    shown = {}
    for format, ending in (("terminal", "txt"), ("markdown", "md"), ("latex", "tex")):
        out = tmp_path / f"table.{ending}"
        done = tables(*args, "--out", out)
        assert done.returncode == 0, done.stderr
        shown[format] = out.read_text()
        assert shown[format].isascii()
        assert tables(*args, "--format", format).stdout == shown[format]
    latex = shown["latex"]
    assert braces_balance(latex)
    opened, closed = (re.findall(rf"\\{word}{{(\w+)}}", latex) for word in ("begin", "end"))
    assert opened == ["table", "tabular", "minipage"] and closed == ["tabular", "minipage", "table"]
    columns = len(re.search(r"\\begin{tabular}{([lr])(r+)}", latex)[2])
    body = latex[latex.index("\\toprule"):latex.index("\\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == columns for line in lines)
    assert not re.search(r"(?<!\\)[_#%$^~]", body)
    pipes = [line for line in shown["markdown"].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in pipes}) == 1 and pipes[0].count("|") == columns + 2
    numbers = lambda text: re.findall(r"\d[\d,.]* (?:KiB|MiB|B)\b|\b\d+,\d+\b", text.replace("\\,", " "))
    cells = [numbers(text) for text in ("\n".join(shown["terminal"].split("---\n")[1:]), "\n".join(pipes), body)]
    assert cells[1] == cells[2] and [cell for cell in cells[0] if cell in cells[1]][:len(cells[1])] == cells[1]


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_tables_fit_the_terminal(columns):
    budget = ["--budget", "80GiB"] + (["--variants", "contiguous/f16; contiguous/kivi(bits=2)"] if columns < 48 else [])
    for args in (["--model", "gemma-3-27b,deepseek-v3"], budget):
        done = tables(*args, "--measure", "0B", env={**ENV, "COLUMNS": str(columns)})
        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= columns
    plain = tables("--model", "gemma-3-27b", "--measure", "0B", env={**ENV, "COLUMNS": "80"}).stdout
    assert plain.count("tokens  ") <= 2 and "20.8 GiB*" in plain


def test_units_are_named_and_never_mixed(config_json):
    args = ["--model", config_json(), "--variants", "contiguous/f16", "--lengths", "100000"]
    assert "48.8 MiB" in tables(*args).stdout and "51.2 MB" in tables(*args, "--units", "decimal").stdout
    fit = lambda budget: int(csv_table(*args, "--budget", budget, "--weights", "0B")[0]["seq_len"])
    assert (fit("1MiB"), fit("1MB")) == (2048, 1953)  # of 512 bytes a token
    text = tables(*args, "--budget", "1MB", "--weights", "500kB").stdout
    assert "1MB (977 KiB)" in text and "500kB (488 KiB)" in text and "488 KiB remain" in text


def test_a_budget_says_the_longest_context_and_the_largest_batch(config_json):
    model = config_json(num_parameters=1000, torch_dtype="float16", sliding_window=256)
    args = ["--model", model, "--variants", "contiguous/f16; contiguous/kivi", "--lengths", "100,10000", "--batch", 2]
    rows = {(row["variant"], row["asked"], row["seq_len"] if "batch" in row["asked"] else ""): row
            for row in csv_table(*args, "--budget", f"{2000 + 10 * 256 * 512}B")}
    f16 = lambda *key: rows["contiguous/f16", *key]
    # The window bounds a sequence, so any context fits, and ten sequences however long.
    assert f16("longest_context", "")["status"] == "unbounded"
    assert (f16("largest_batch", "10000")["batch"], f16("largest_batch", "100")["batch"]) == ("10", "25")
    assert f16("largest_batch", "10000")["bytes"] == str(10 * 256 * 512) and f16("largest_batch", "100")["weights_bytes"] == "2000"
    kivi = rows["contiguous/kivi", "longest_context", ""]
    assert (kivi["seq_len"], kivi["status"]) == ("256", "fits") and "window" in kivi["reason"]
    assert rows["contiguous/kivi", "largest_batch", "10000"]["status"] == "none"
    unknown = csv_table("--model", config_json(), "--variants", "contiguous", "--budget", "1MB")
    assert {row["weights_bytes"] for row in unknown} == {""}
    assert "not counted" in tables("--model", config_json(), "--variants", "contiguous", "--budget", "1MB").stdout
    small = tables("--budget", "16GB").stdout  # llama-3-8b's weights alone are 16.06 GB
    assert "nothing remains" in small


def test_the_readme_shows_what_the_command_prints():
    readme = (HOME / "README.md").read_text()
    shown = readme[readme.index("KV cache of llama-3.1-8b"):]
    shown = shown[:shown.index("```")].rstrip()
    printed = tables("--model", "llama-3.1-8b", "--lengths", "1024,8192,131072", env={**ENV, "COLUMNS": "100"}).stdout
    assert printed.startswith(shown + "\n\n* computed only")


def test_the_listing_has_every_model():
    listed = kvlab("list", "--models").stdout
    for path in (HOME / "configs" / "models").glob("*.json"):
        assert re.search(rf"^{re.escape(path.stem)} +\d", listed, re.M), path.stem
    assert re.search(r"^llama-2-7b +32 +32 +128 .* 6738415616 +4\.00 GiB$", listed, re.M)


@pytest.mark.parametrize(
    "args, parts",
    [
        (["--model", "llama-9"], ["llama-9", "llama-3-8b"]),
        (["--model", "missing.json"], ["missing.json"]),
        (["--model", "/dev/null"], ["/dev/null", "JSON"]),
        (["--variants", "contiguous/f17"], ["f17"]),
        (["--variants", " ;"], ["--variants is empty"]),
        (["--lengths", "4K"], ["--lengths '4K'"]),
        (["--lengths", " "], ["--lengths ''"]),
        (["--lengths", "0"], ["--lengths '0'"]),
        (["--lengths", "10,,20"], ["--lengths ''"]),
        (["--lengths", "20..10"], ["--lengths '20..10'", "before"]),
        (["--lengths", "1073741825"], ["1073741824"]),
        (["--batch", "0"], ["--batch"]),
        (["--units", "metric"], ["--units"]),
        (["--format", "pdf"], ["--format"]),
        (["--measure", "1G"], ["--measure '1G'", "GiB", "GB"]),
        (["--budget", "16"], ["--budget '16' has no unit"]),
        (["--budget", "16GiB", "--weights", "many"], ["--weights 'many'"]),
        (["--weights", "1GB"], ["--budget"]),
        (["--measure", "0B", "--out", "/proc/x.csv"], ["/proc/x.csv"]),
    ],
)
def test_tables_are_refused(args, parts):
    assert_refused(tables(*args), *parts, lines=3 if "contiguous/f17" in args else 1)


def test_tables_overwrite_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("mine")
    assert_refused(tables("--measure", "0B", "--out", tmp_path / "t.csv"), "t.csv", "already")
    assert (tmp_path / "t.csv").read_text() == "mine"


@pytest.mark.parametrize("facts, parts", [
    ({"num_hidden_layers": None}, ["num_hidden_layers", "missing"]),
    ({"num_attention_heads": "4"}, ["num_attention_heads", '"4"']),
    ({"num_key_value_heads": 3}, ["num_key_value_heads (3)"]),
    ({"layer_types": ["full_attention"]}, ["layer_types"]),
    ({"sliding_window": -1}, ["sliding_window", "-1"]),
    ({"kv_lora_rank": 4}, ["qk_rope_head_dim", "missing"]),
    ({"index_head_dim": 128}, ["index_head_dim", "does not know"]),
])
def test_a_config_json_is_refused(config_json, facts, parts):
    assert_refused(tables("--model", config_json(**facts)), "tiny.json", *parts)


def test_run_refuses_a_latent_cache(config, tmp_path):
    done = run(config, tmp_path / "out", "--set", 'model={preset="deepseek-v3"}')
    assert_refused(done, "deepseek-v3", "MLA", "kvlab tables")
