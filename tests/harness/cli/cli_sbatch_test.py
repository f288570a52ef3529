"""What `kvlab sbatch` prints, and writes when it is told to; slurm_test.py gives it to a real Slurm."""

import subprocess

from program import ENV, HOME, assert_refused, kvlab, succeeded, table

CONFIG = HOME / "configs" / "quickstart.toml"


def sbatch(out, *args, **options):
    return kvlab("sbatch", CONFIG, "--nodes", "2", "--out", out, *args, **options)


def test_what_would_be_submitted_is_printed_and_nothing_written(tmp_path):
    two = {"sweep.variants": ["contiguous", "concat"]}
    done = succeeded(sbatch(tmp_path / "out", "--shards", 4, "--partition", "cpu", two, "--sbatch=--account=lab"))
    for line in ("#SBATCH --array=1-4%2", "#SBATCH --exclusive", "#SBATCH --requeue", "#SBATCH --partition=cpu", "#SBATCH --account=lab",
                 "sbatch --parsable --dependency=afterok:ARRAY"):
        assert line in done.stdout
    assert '--resume --no-plots --shard "$SLURM_ARRAY_TASK_ID/4"' in done.stdout
    assert f"merge {tmp_path}/out/shards/1 {tmp_path}/out/shards/2" in done.stdout
    assert not (tmp_path / "out").exists()


def test_a_task_runs_its_shard_and_the_merge_follows(tmp_path):
    """The scripts themselves, with a stand-in for sbatch that only gives numbers."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "sbatch").write_text(f"#!/bin/sh\necho \"$@\" >>{tmp_path}/asked\necho 7\n")
    (fake / "sbatch").chmod(0o755)
    out = tmp_path / "o u't"
    small = {"decode.seq_len": [32, 64], "growth.seq_len": 64, "decode.steps": 4, "sweep.variants": ["contiguous", "concat"]}
    succeeded(sbatch(out, "--submit", small, env={**ENV, "PATH": f"{fake}:{ENV['PATH']}"}))
    assert "--dependency=afterok:7" in (tmp_path / "asked").read_text()
    for task in ("1", "2"):
        succeeded(subprocess.run(["sh", out / "array.sh"], env={**ENV, "SLURM_ARRAY_TASK_ID": task}, capture_output=True, text=True))
    succeeded(subprocess.run(["sh", out / "merge.sh"], env=ENV, capture_output=True, text=True))
    assert len(table(out / "merged" / "cells.csv")) == 3 * 3  # two variants and the A/A test at three points


def test_nor_does_one_in_the_name_of_a_config(tmp_path):
    config = tmp_path / "a\necho hacked.toml"
    config.write_text(CONFIG.read_text())
    assert_refused(kvlab("sbatch", config, "--nodes", "2", "--out", tmp_path / "out"), "--job-name=", "line break")


def test_without_slurm_nothing_is_claimed(tmp_path):
    done = sbatch(tmp_path / "out", "--submit", env={**ENV, "PATH": "/nonexistent"})
    assert done.returncode == 2 and "this command failed: sbatch" in done.stderr and "submitted" not in done.stdout
