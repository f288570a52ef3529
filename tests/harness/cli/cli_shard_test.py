"""Shards of a run, what `kvlab merge` makes of them, and what `kvlab sbatch` prints, and writes when it is told to; slurm_test.py gives
it to a real Slurm."""

import json
import re
import shutil
import subprocess

import pytest
from program import (
    ENV, HOME, assert_refused, cells_by_key, change_environment, change_row, kvlab, no_file_beyond, run, succeeded, table, write_table,
)  # fmt: skip

SHARDS = 3
QUICKSTART = HOME / "configs" / "quickstart.toml"


@pytest.fixture(scope="module")
def shards(config, tmp_path_factory):
    top = tmp_path_factory.mktemp("shards")
    for shard in range(1, SHARDS + 1):
        succeeded(run(config, top / str(shard), "--shard", f"{shard}/{SHARDS}"))
    return [top / str(shard) for shard in range(1, SHARDS + 1)]


@pytest.fixture
def copies(shards, tmp_path):
    return [shutil.copytree(folder, tmp_path / folder.name) for folder in shards]


def merge(folders, out, *args, **options):
    return kvlab("merge", *folders, "--out", out, "--no-plots", *args, **options)


def as_of_another_host(folder, host):
    rows = table(folder / "cells.csv")
    for row in rows:
        row["host"] = host
    write_table(folder / "cells.csv", rows)
    change_environment(folder, host=host)


def test_a_point_stays_with_its_baseline_and_its_aa_test(shards):
    for folder in shards:
        cells = cells_by_key(folder)
        for row in cells.values():
            if row["versus"]:
                assert any(row["cell"].replace(row["variant"], row["versus"]).removesuffix(" aa_test") == key for key in cells)
        points = {(row["experiment"], row["seq_len"]) for row in cells.values()}
        timed = [row for row in cells.values() if row["verdict"] == "aa_test"]
        assert {(row["experiment"], row["seq_len"]) for row in timed} == points


def test_shards_are_listed(config, shards):
    listed = succeeded(kvlab("run", config, "--list-shards", SHARDS))
    for shard, folder in enumerate(shards, 1):
        points = {f"{row['experiment']} {row['workload']} b{row['batch']} s{row['seq_len']}" for row in table(folder / "cells.csv")}
        lines = [line for line in listed.stdout.splitlines() if line.startswith(f"  {shard}/{SHARDS} ")]
        assert {point for point in points if any(point in line for line in lines)} == points
        assert len(lines) == len(points) + 1  # and its sum


def test_a_shard_resumes_as_that_shard_alone(config, copies):
    succeeded(run(config, copies[0], "--shard", f"1/{SHARDS}", "--resume"))
    assert_refused(run(config, copies[0], "--shard", f"2/{SHARDS}", "--resume"), "--resume", "shard was", "1/3", "2/3")


@pytest.mark.parametrize("name", ["cells.csv", "samples.csv", "growth.csv"])
def test_torn_files_are_refused(copies, tmp_path, name):
    path = next(folder for folder in copies if (folder / name).exists() and len((folder / name).read_text().splitlines()) > 1) / name
    text = path.read_text()
    path.write_text(text[:-20])
    assert_refused(merge(copies, tmp_path / "out"), str(path), "incomplete")
    if name != "cells.csv":
        path.write_text(text[: text[:-1].rindex("\n") + 1])  # between two lines
        assert_refused(merge(copies, tmp_path / "out"), "steps, but", out=tmp_path / "out")


@pytest.mark.parametrize("change, said", [
    (lambda folder: change_environment(folder, finished=""), ["not finished", "--resume"]),
    (lambda folder: (folder / "config.toml").write_text((folder / "config.toml").read_text() + "\nseed = 2\n"), ["different configs"]),
    (lambda folder: change_environment(folder, "kvlab", git_commit="0" * 40), ["two binaries", "0" * 40]),
    (lambda folder: change_environment(folder, "kvlab", binary="0" * 16), ["two binaries", "0" * 16]),
    (lambda folder: change_environment(folder, compiler="other"), ["two binaries", "other"]),
    (lambda folder: (folder / "env.json").write_text('{"started": "x",\n oops}'), ["env.json: line 2, column 2: not JSON"]),
    (lambda folder: (folder / "notes.csv").touch(), ["notes.csv", "lose"]),  # a table that nobody knows
])
def test_a_shard_that_does_not_fit_the_others_is_refused(copies, tmp_path, change, said):
    change(copies[1])
    assert_refused(merge(copies, tmp_path / "out"), str(copies[1]), *said, out=tmp_path / "out")


def test_duplicates_that_disagree_are_refused_and_copies_are_not(copies, tmp_path):
    again = shutil.copytree(next(f for f in copies if len(table(f / "cells.csv")) > 2), tmp_path / "again")
    succeeded(merge([*copies, again], tmp_path / "out"))
    assert len(cells_by_key(tmp_path / "out")) == sum(len(table(f / "cells.csv")) for f in copies)
    cell = change_row(again, step_p50_us="1.5")
    assert_refused(merge([*copies, again], tmp_path / "other"), cell, "disagree", "step_p50_us", "1.5")


def test_hosts_keep_their_times_and_must_agree_on_the_rest(copies, copy, tmp_path):
    as_of_another_host(copy, "other")
    succeeded(merge([*copies, copy], tmp_path / "out"))
    rows = table(tmp_path / "out" / "cells.csv")
    for host in {row["host"] for row in rows}:
        assert len([row for row in rows if row["host"] == host]) == len(rows) / 2
    assert [row for row in rows if row["host"] == "other"]
    samples = table(tmp_path / "out" / "samples.csv")
    assert len({row["host"] for row in samples}) == 2
    cell = change_row(copy, err_rel_l2="0.5")
    done = merge([*copies, copy], tmp_path / "differs")
    assert done.returncode == 1
    assert re.search(rf"finding: hosts disagree: '{re.escape(cell)}': err_rel_l2 is .*\b0\.5 on other ", done.stderr)
    assert len(json.loads((tmp_path / "differs" / "env.json").read_text())["findings"]) == 1


def test_a_merge_does_not_replace_a_run(shards):
    assert_refused(merge(shards, shards[0]), "already holds results")


def test_a_killed_merge_is_no_run_and_the_next_one_clears_it_away(config, copies, shards, tmp_path):
    """A merge works beside its place; this is what is there before it writes env.json, the last but one file."""
    out, beside = tmp_path / "out", tmp_path / "out.part"
    shutil.copytree(next(folder for folder in copies if len(table(folder / "cells.csv")) > 2), beside)
    (beside / "env.json").unlink()
    assert_refused(run(config, beside, "--resume"), "--resume", "no env.json")
    succeeded(merge(shards, out))
    assert out.exists() and not beside.exists()
    beside.mkdir()
    (beside / "thesis.tex").touch()
    assert_refused(merge(shards, tmp_path / "out"), "already holds results")
    shutil.rmtree(out)
    assert_refused(merge(shards, out), "out.part", "thesis.tex", out=out)
    assert (beside / "thesis.tex").exists()


def test_a_merge_that_finds_the_disk_full_leaves_nothing(shards, tmp_path):
    assert_refused(merge(shards, tmp_path / "out", preexec_fn=no_file_beyond(4000)), "cannot write", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_several_machines_is_not_resumed(config, copies, copy, tmp_path):
    as_of_another_host(copy, "other")
    succeeded(merge([*copies, copy], tmp_path / "out"))
    assert_refused(run(config, tmp_path / "out", "--resume"), "--resume", "merged from 2 machines")
    succeeded(merge([tmp_path / "out"], tmp_path / "again"))
    assert (tmp_path / "again" / "samples.csv").read_text() == (tmp_path / "out" / "samples.csv").read_text()


@pytest.mark.parametrize("changes", [{"started": 5, "finished": 5}, {"kvlab": "x", "cpu": [1]}, {"hosts": 3, "shard": [], "host": {}, "config": 1}])
def test_wrong_types_in_an_environment_are_no_crash(config, copies, tmp_path, changes):
    for folder in copies:
        change_environment(folder, **changes)
    for done in (merge(copies, tmp_path / "out"), run(config, copies[0], "--resume", "--shard", "1/3"), kvlab("check-results", copies[0])):
        assert done.returncode in (0, 1, 2), done.stderr
        assert "exception" not in done.stderr and "internal error" not in done.stderr and done.stderr.count("\n") <= 1, done.stderr


def sbatch(out, *args, **options):
    return kvlab("sbatch", QUICKSTART, "--nodes", "2", "--out", out, *args, **options)


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


def test_a_configs_name_brings_no_line_break_into_a_script(tmp_path):
    config = tmp_path / "a\necho hacked.toml"
    config.write_text(QUICKSTART.read_text())
    assert_refused(kvlab("sbatch", config, "--nodes", "2", "--out", tmp_path / "out"), "--job-name=", "line break")


def test_without_slurm_nothing_is_claimed(tmp_path):
    done = sbatch(tmp_path / "out", "--submit", env={**ENV, "PATH": "/nonexistent"})
    assert done.returncode == 2 and "this command failed: sbatch" in done.stderr and "submitted" not in done.stdout
