"""Every command that `help` lists, killed at any of its file operations: what stands under its name is whole, and the command can be given again."""

import shutil
import sys

import pytest
from cli_help_test import commands
from cli_reproduce_test import CLAIMS
from program import HOME, PROGRAM, counted, kvlab, succeeded

MODEL = HOME / "configs/models/kvlab-recall-1m"
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
    (tmp_path / "paper.toml").write_text(CLAIMS.replace("null_ab = false", "null_ab = false, retries = 0"))
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


CONCLUSIONS = "answers.json"


def names_in(path):
    """The files under its name; hidden are folders and files that are not yet what they will be."""
    if path.is_file():
        return {""}
    inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file()) if path.exists() else ()
    return {str(p) for p in inside if not (any(part.startswith((".new-", ".unfinished-", ".lock")) for part in p.parts) or p.suffix == ".part")}


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_killed_command_leaves_nothing_half_and_can_be_given_again(command, written, file_operations, tmp_path):
    assert (command in written) != (command in WHY_NOT)
    if command in WHY_NOT:
        assert WHY_NOT[command] != PRINTS or "--out" not in kvlab(command, "--help").stdout
        return
    words, out, entry = written[command]

    def give(kill_at):
        done, operations = counted(file_operations, words, kill=kill_at, home=out if command == "models" else HOME, letters="ors")
        return done, len(operations)

    done, operations = give(0)
    whole = names_in(out)
    assert done.returncode == 0 and operations > 0 and whole and (not entry or entry in whole), done.stderr
    for kill_at in sorted({1, operations // 3, operations // 2, operations - 1, operations} - {0}):
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)
        assert give(kill_at)[0].returncode == -9, kill_at
        if (left := names_in(out)) == whole - {CONCLUSIONS}:  # drawn from the others, so they can be drawn again
            succeeded(kvlab("summary", out))
            left = names_in(out)
        assert (left == whole) if (entry in left or entry == "" and left) else True, (kill_at, left)
        if left == whole and command not in ("run", "plot", "site", "models"):
            continue  # all of it is there; a second one is refused
        again = give(0)[0]
        assert again.returncode == 0 and names_in(out) == whole, (kill_at, left, again.stderr)
        assert not list(tmp_path.rglob("*.part")) and not list(tmp_path.rglob(".unfinished-*"))
