"""What is refused, each in one line: settings, variants, configs, arguments, folders, full disks."""

import json
import os
import resource
import shutil
import subprocess
import time

import pytest
from program import (
    CONFIG, ENV, assert_complete, assert_refused, cells_by_key, cells_of, kvlab, lines_by_cell, no_file_beyond, run,
    skip_where_openmp_needs_a_file, start, succeeded, table, unmeasured_cells, without_gpu,
)  # fmt: skip


@pytest.mark.parametrize("setting, parts", [
    ("tpyo=1", ["tpyo is not a key", "known: arithmetic, ", ", … ("]),
    ("measure.repetitoins=3", ["measure.repetitoins is not a key that is known here; did you mean 'repetitions'? Known: "]),
    ("sweep.lenghts=1", ["sweep.lenghts is not a key", "did you mean 'lengths'? Known: "]),
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
    ("sweep.workload=zeros", ["sweep.workload has 'zeros'", "gaussian"]),
    ("sweep.workload=dump", ["needs workload.dump"]),
    ("sweep.workload=model", ["needs workload.model"]),
    ("sweep.variants=[]", ["sweep.variants is an empty axis"]),
    ("sweep.variants=3", ["sweep.variants must be text"]),
    ('sweep.variants=["concat", "concat/f32"]', ["sweep.variants names 'concat' twice"]),
    ('sweep.variants=["concat", "none"]', ["sweep.variants names 'none', no cache at all", "variants of [growth], [whole_model], not of "]),
    ("sweep=3", ["sweep must be a table"]),
    ("experiment=growht", ["experiment has 'growht'; did you mean 'growth'? Known: decode, growth, "]),
    ('experiment=["decode", "decode"]', ["experiment names decode twice"]),
    ("experiment=[]", ["experiment is an empty axis"]),
    ("model.q_heads=3", ["model.q_heads (3) must be a multiple of kv_heads (2)"]),
    ("model.q_heads=0", ["model.q_heads must be from 1"]),
    ("model.head_dim=12", ["head_dim must be a multiple of 8", "12"]),
    ("model.head_dim=100000", ["model.head_dim must be from 8 to 576"]),
    ("model.layers=-1", ["model.layers must be from 1"]),
    ("model.preset=gpt-9", ["[model] needs one of"]),
    ("measure.repetitions=0", ["measure.repetitions must be from 1"]),
    ("measure.attend=3", ["measure.attend must be true or false"]),
    ("measure.allocator=lukewarm", ["measure.allocator is 'lukewarm'; known: warm, fresh"]),
    ("measure.memory=4", ["measure.memory must be a number of bytes with its unit"]),
    ("measure.memory=4G", ["measure.memory is no number of bytes", "4G"]),
    ("measure.memory_share=nan", ["measure.memory_share must be a number"]),
    ("seed=-1", ["seed must be from 0"]),
    ("isa=avx9", ["avx9"]),
    ("workload.model=only.bin", ["only.bin", "does not exist"]),
    ("workload.tokenizer=tests/harness/cli/program.py", ["[workload] needs a model where"]),
    ("nonsense", ["--set nonsense: expected key=value"]),
    ("=3", ["--set =3: expected key=value"]),
    ("sweep.seq_len.x=3", ["--set sweep.seq_len.x", "is not a table"]),
    ("workload.model=only.gguf", ["'only.gguf' does not exist, neither here nor in "]),
])
def test_a_setting_is_refused(config, tmp_path, setting, parts):
    assert_refused(run(config, tmp_path / "out", "--set", setting), *parts, out=tmp_path / "out")


@pytest.mark.parametrize("setting", ["sweep.seq_len=0", "tpyo=1", "sweep=3", "sweep.variants=conact", "decode.steps=[1"])
def test_a_mistake_of_the_command_line_is_not_blamed_on_the_config(config, tmp_path, setting):
    done = run(config, tmp_path / "out", "--set", setting)
    assert done.returncode == 2 and done.stderr.startswith(f"kvlab: --set: {setting.partition('=')[0]} ")
    own = tmp_path / "own.toml"
    own.write_text("tpyo = 1\n" + CONFIG)
    assert_refused(run(own, tmp_path / "out"), f"{own}:1: tpyo")


def test_a_mistyped_family_is_refused_though_nothing_uses_it(config, tmp_path):
    words = {"sweep.workload": "gaussian", "workload.family": '"outlier"'}
    assert_refused(run(config, tmp_path / "out", words), "--set: workload.family is 'outlier'; did you mean 'outliers'? Known: ")


@pytest.mark.parametrize("words", [["tables"], ["eval", "x"], ["plan", "--memory", "24GB", "--context", "4K", "--users", "1"]])
def test_specs_with_commas_between_them_are_told_of_semicolons(tmp_path, words):
    out = ["--out", tmp_path / "out"] if words[0] == "eval" else []
    assert_refused(kvlab(*words, "--variants", "contiguous,concat/kivi(bits=2,group=32)", *out), "separate specs with ';'")


@pytest.mark.parametrize("words", [["run", "configs/quickstart.toml"], ["eval", "x", "--variants", "concat"], ["merge", "x"], ["reproduce"],
                                   ["sbatch", "configs/quickstart.toml", "--nodes", "2"], ["tables"], ["logits", "--model", "x", "--text", "x"]])  # fmt: skip
@pytest.mark.parametrize("empty", [["--out", ""], ["--out="]])
def test_an_empty_out_is_refused(tmp_path, words, empty):
    done = kvlab(*words, *empty, cwd=tmp_path)
    assert_refused(done, "--out")
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "link.csv").symlink_to(tmp_path / "behind.csv")
    succeeded(kvlab("tables", "--variants", "concat", "--out", tmp_path / "link.csv"))
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "behind.csv").read_text().count("\n") > 1


def test_what_a_file_says_is_no_command_of_the_terminal(results, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(results, folder)
    text = (folder / "cells.csv").read_text()
    (folder / "cells.csv").write_text(text.replace("concat f16", "concat f16\x1b[2J\u009b2J\x7f"))
    done = kvlab("summary", folder, "--table", "full")
    assert done.returncode == 0 and "concat f16" in done.stdout
    assert not set(done.stdout) & {"\x1b", "\u009b", "\x7f"}


@pytest.mark.parametrize("spec, parts", [
    ("contiguous + sliding:concat", ["no layers of kind 'sliding'", "it has full ("]),
    ("contiguous + 900:concat", ["there is no layer 900", "full"]),
    ("contiguous + 0:concat + 0:doubling", ["layer 0 is given two specs"]),
    ("contiguous/ring(window=model)", ["'window=model' needs one", "'full'"]),
    ("conact", ["no placement is called 'conact'", "did you mean 'concat'"]),
    ("kivi(bits=2)", ["no placement is called 'kivi', which is a codec: contiguous/kivi(bits=2)"]),
    ("contiguous/f8", ["no codec, retention or selection is called 'f8'"]),
    ("doubling(raed=copy)", ["raed"]),
    ("doubling(read=maybe)", ["maybe", "view"]),
    ("doubling(read=copy", ["doubling(read=copy"]),
    ("", []),
])
def test_a_variant_is_refused_with_its_place(config, tmp_path, spec, parts):
    done = run(config, tmp_path / "out", "--set", f'sweep.variants=["contiguous", "{spec}"]')
    assert done.returncode == 2 and "Traceback" not in done.stderr
    message = done.stderr.splitlines()
    assert message[0].startswith("kvlab: ") and "sweep.variants" in message[0]
    assert all(part in done.stderr for part in parts), done.stderr
    assert message[-1].strip() == "^"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text, parts", [
    ("a = \nb = 1\n", [":1: "]),
    ("title = 'x'\n[sweep\n", [":2: "]),
    ("title = 3\n", [":1: title must be text"]),
    ("", ["experiment is missing"]),
    ('experiment = "decode"\n', ["sweep.variants is missing"]),
    ('experiment = "decode"\n[sweep]\nvariants = "concat"\n', ["sweep.seq_len is missing"]),
    ('experiment = "decode"\n[sweep]\nvariants = "concat"\nseq_len = 8\n', ["[model] needs one of"]),
    ('experiment = "decode"\n[sweep]\nvariants = "concat"\nseq_len = 8\n[model]\npreset = "gpt-9"\n',
     ["gpt-9", "did you mean 'gpt2'?"]),
    ("\xff\x00", [":1: "]),
    (CONFIG + "[[decode]]\n[[decode]]\nseq_len = [8, 32]\n",
     ["two [[decode]] tables have the cell 'decode gaussian b1 s32 contiguous'", "give it to one of them"]),
    (CONFIG + "[[decode]]\n[[decode]]\nseq_length = 8\n", ["decode[1].seq_length", "is not a key"]),
])
def test_a_config_is_refused_at_its_line(tmp_path, text, parts):
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    assert_refused(run(path, tmp_path / "out"), *parts, out=tmp_path / "out")


@pytest.mark.parametrize("args, parts", [
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
    (["run", "configs/ci.toml", "--device", "tpu"], ["'tpu' is unknown; did you mean 'cpu'? Known: cpu, cuda"]),
    pytest.param(["run", "configs/ci.toml", "--device", "cuda"], ["no GPU can be used"], marks=without_gpu),
    (["run", "configs/ci.toml", "--resume"], ["--resume needs --out"]),
    (["run", "configs/ci.toml", "--model", "nope.bin"], ["nope.bin", "does not exist"]),
    (["eval", "--variants", "concat", "--out", "x"], ["eval needs a dump", "--example"]),
    (["run", "configs/serve.toml", "--dry-run", "--set", "serve.requests=16"], ["'serve' is several tables", "serve.0.KEY to serve.1.KEY"]),
    (["run", "configs/serve.toml", "--dry-run", "--set", "serve.3.requests=16"], ["'serve' is several tables", "serve.0.KEY to serve.1.KEY"]),
])
def test_a_command_line_is_refused(tmp_path, args, parts):
    assert_refused(kvlab(*args, cwd=tmp_path), *parts)
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("out", ["/proc/kvlab", "/sys/kvlab", "/dev/full/x", "/dev/null"])
def test_out_is_refused_where_nothing_can_be_made(config, out):
    assert_refused(run(config, out), out)


@pytest.mark.parametrize("size", [0, 100, 700, 900])
def test_a_disk_full_from_the_start_leaves_nothing(config, tmp_path, size):
    done = run(config, tmp_path / "out", preexec_fn=no_file_beyond(size))
    skip_where_openmp_needs_a_file(done)
    assert_refused(done, "cannot write", "out", out=tmp_path / "out")


def test_a_disk_that_fills_keeps_what_is_finished(config, results, tmp_path):
    folder = tmp_path / "out"
    # growth.csv is the largest: it no longer fits somewhere in the last two blocks.
    size = (results / "growth.csv").stat().st_size // 2
    done = run(config, folder, preexec_fn=no_file_beyond(size))
    assert_refused(done, "cannot write", "growth.csv")
    before = lines_by_cell(folder / "cells.csv")
    assert before and len(before) < len(cells_by_key(results))
    assert (folder / "growth.csv").read_bytes().endswith(b"\n")
    succeeded(run(config, folder, "--resume"))
    assert_complete(folder, results)
    after = lines_by_cell(folder / "cells.csv")
    assert all(after[cell] == line for cell, line in before.items())


def test_a_full_spill_disk_ends_one_cell_until_there_is_room(config, tmp_path):
    """128 tokens fit into the file that may not grow beyond 1 MiB, 2048 do not; the run and its other cells go on."""
    spilling = "tiered(hot=64,warm=0)"
    more = {"sweep.variants": ["contiguous", spilling], "sweep.seq_len": [2048, 128], "model.head_dim": 128, "experiment": "decode"}
    succeeded(run(config, tmp_path / "out", more, preexec_fn=no_file_beyond(1 << 20)))
    rows = [row for row in table(tmp_path / "out" / "cells.csv") if not row["cell"].endswith(" aa_test")]
    assert {(row["variant"], row["seq_len"], row["status"]) for row in rows} == {
        ("contiguous", "2048", "ok"), (spilling, "2048", "out_of_memory"), ("contiguous", "128", "ok"), (spilling, "128", "ok")}
    (refused,) = [row for row in rows if row["status"] != "ok"]
    assert "File too large" in refused["reason"] and refused["step_p50_us"] == ""
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
    assert_refused(done, "the clock moves in steps of 10000 us", out=tmp_path / "out")


def test_a_pipe_that_nobody_writes_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    for arguments in (["run", tmp_path / "pipe.toml"], ["tables", "--model", tmp_path / "pipe.toml"]):
        assert_refused(kvlab(*arguments, timeout=20), "pipe.toml: it is not a regular file")


def test_a_full_terminal_is_an_error():
    with open("/dev/full", "w") as full:
        done = kvlab("list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2 and done.stderr == "kvlab: cannot write to standard output\n"
