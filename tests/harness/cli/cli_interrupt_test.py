"""Every command that `help` lists, killed at any of its file operations: what stands under its name is whole, and the command can be given again."""

import shutil
import subprocess
import sys

import pytest
from cli_help_test import commands
from program import ENV, HOME, PROGRAM, kvlab, succeeded

# Counts what makes, empties, syncs and renames files, in all of a command's processes, and kills them at the Nth.
SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void count(void) {
  const int file = syscall(SYS_openat, AT_FDCWD, getenv("KILL_COUNTER"), O_WRONLY | O_APPEND);
  if (syscall(SYS_write, file, "x", 1) == 1 && lseek(file, 0, SEEK_CUR) == atol(getenv("KILL_AT"))) kill(0, SIGKILL);
  close(file);
}
#define OPEN(AT, PATH, FLAGS)                                 \
  va_list more;                                               \
  va_start(more, FLAGS);                                      \
  const int mode = FLAGS & O_CREAT ? va_arg(more, int) : 0;   \
  if (FLAGS & O_CREAT) count();                               \
  return syscall(SYS_openat, AT, PATH, FLAGS, mode);
int open(const char* path, int flags, ...) { OPEN(AT_FDCWD, path, flags) }
int openat(int at, const char* path, int flags, ...) { OPEN(at, path, flags) }
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
int rename(const char* from, const char* to) { return count(), syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int fsync(int file) { return count(), syscall(SYS_fsync, file); }
"""
MODEL = HOME / "configs/models/kvlab-recall-1m"
CLAIMS = """
document = "a paper"
[run.update]
experiment = "growth"
threads = 1
model = { q_heads = 2, kv_heads = 2, head_dim = 32 }
sweep = { variants = ["concat", "doubling"], seq_len = 32 }
measure = { attend = false, repetitions = 5, null_ab = false }
[[claim]]
id = "speed"
text = "a speed"
where = "Table 2"
quote = "in place is faster"
check = "ordering"
published = ">0×"
cells.concat = { run = "update", variant = "concat", metric = "step_us", take = "sum" }
measured = "concat"
"""
PRINTS = "it prints and writes nothing"
WHY_NOT = dict.fromkeys(("check-results", "summary", "compare", "list", "environment", "schema", "sample", "completion", "help"), PRINTS) | {
    "sbatch": "it prints; --submit hands two scripts to Slurm, each a whole file",
    "choose": "its answer is a whole file, as those of tables and plan; its readings are runs in a folder of their own",
    "peers": "pip installs into .venv-peers, and goes on where it was killed",
    "gpu-check": "it keeps the rows of each stage as they come; needs a GPU",
    "test": "CMake builds, and goes on where it was killed",
}


def python(file, *words):
    return [sys.executable, HOME / file, *words]


@pytest.fixture
def written(config, results, tmp_path):
    """By command: its words, what it writes, and the file that is there only if all is."""
    out, dump = tmp_path / "out", tmp_path / "dump.safetensors"
    (tmp_path / "paper.toml").write_text(CLAIMS)
    (tmp_path / "ids.u16").write_bytes(bytes(byte for i in range(512) for byte in (i % 250, i % 2)))
    succeeded(kvlab("eval", "--example", dump))
    spec = "contiguous/f16"
    return {
        "run": ([PROGRAM, "run", config, "--out", out, "--no-plots", "--set", "sweep.seq_len=8", "--resume"], out, "benchmark.json"),
        "eval": ([PROGRAM, "eval", dump, "--variants", spec, "--out", out, "--no-plots"], out, "cells.csv"),
        "merge": ([PROGRAM, "merge", results, "--out", out], out, "cells.csv"),
        "reproduce": ([PROGRAM, "reproduce", tmp_path / "paper.toml", "--out", out, "--no-plots"], out, "claims.csv"),
        "logits": ([PROGRAM, "logits", "--model", MODEL, "--text", tmp_path / "ids.u16", "--out", out], out, ""),
        "calibrate": ([PROGRAM, "calibrate", MODEL, "--text", tmp_path / "ids.u16", "--from", "0", "--tokens", "512", "--window", "256",
                       "--codebooks", "1", "--out", out], out, ""),
        "tables": ([PROGRAM, "tables", "--measure", "0B", "--variants", spec, "--out", out, "--format", "csv"], out, ""),
        "plan": ([PROGRAM, "plan", "--memory", "24GB", "--context", "1K", "--users", "1", "--variants", spec, "--out", out], out, ""),
        "plot": (python("plots/report.py", results, "--out", out, "--figures", "svg"), out, "report.html"),
        "site": (python("plots/publish.py", results, "--out", out), out, "index.html"),
        "models": (python("harness/model/model_files.py", "text"), out / ".models", ""),  # as a model is fetched, without a network
    }  # fmt: skip


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "kill.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SHIM, text=True, check=True)
    return library


def names_in(path):
    """What stands under its name; hidden are folders and files that are not yet what they will be."""
    if path.is_file():
        return {""}
    inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file()) if path.exists() else ()
    return {str(p) for p in inside if not (any(part.startswith((".new-", ".unfinished-", ".lock")) for part in p.parts) or p.suffix == ".part")}


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_killed_command_leaves_nothing_half_and_can_be_given_again(command, written, shim, tmp_path):
    assert (command in written) != (command in WHY_NOT)
    if command in WHY_NOT:
        assert WHY_NOT[command] != PRINTS or "--out" not in kvlab(command, "--help").stdout
        return
    words, out, entry = written[command]

    def give(kill_at):
        (tmp_path / "count").write_text("")
        env = {**ENV, "LD_PRELOAD": str(shim), "KILL_COUNTER": str(tmp_path / "count"), "KILL_AT": str(kill_at),
               "ASAN_OPTIONS": "verify_asan_link_order=0"}  # fmt: skip
        env["KVLAB_HOME"] = str(out if command == "models" else HOME)
        done = subprocess.run([str(word) for word in words], env=env, capture_output=True, text=True, timeout=300, start_new_session=True)
        return done, (tmp_path / "count").stat().st_size

    done, operations = give(0)
    whole = names_in(out)
    assert done.returncode == 0 and operations > 0 and whole and (not entry or entry in whole), done.stderr
    for kill_at in sorted({1, operations // 3, operations // 2, operations - 1, operations} - {0}):
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
        assert give(kill_at)[0].returncode == -9, kill_at
        left = names_in(out)
        assert (left == whole) if (entry in left or entry == "" and left) else True, (kill_at, left)
        if left == whole and command not in ("run", "plot", "site", "models"):
            continue  # all of it is there; a second one is refused
        again = give(0)[0]
        assert again.returncode == 0 and names_in(out) == whole, (kill_at, left, again.stderr)
        assert not list(tmp_path.rglob("*.part")) and not list(tmp_path.rglob(".unfinished-*"))
