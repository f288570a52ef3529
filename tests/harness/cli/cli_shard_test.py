"""Shards of a run, and what `kvlab merge` makes of them."""

import json
import re
import shutil

import pytest
from program import assert_refused, cells_by_key, change_row, kvlab, lines_by_cell, run, table, write_table

SHARDS = 3
EXACT = re.compile(r"bytes_|err_|kept_tokens$|status$|variant$")


@pytest.fixture(scope="module")
def shards(config, tmp_path_factory):
    top = tmp_path_factory.mktemp("shards")
    for shard in range(1, SHARDS + 1):
        done = run(config, top / str(shard), "--shard", f"{shard}/{SHARDS}")
        assert done.returncode == 0, done.stderr
    return [top / str(shard) for shard in range(1, SHARDS + 1)]


@pytest.fixture
def copies(shards, tmp_path):
    return [shutil.copytree(folder, tmp_path / folder.name) for folder in shards]


def merge(folders, out, *args):
    return kvlab("merge", *folders, "--out", out, "--no-plots", *args)


def change_environment(folder, **changes):
    environment = json.loads((folder / "env.json").read_text())
    for name, value in changes.items():
        table, _, key = name.partition("__")
        if key:
            environment[table][key] = value
        else:
            environment[table] = value
    (folder / "env.json").write_text(json.dumps(environment))


def as_of_another_host(folder, host):
    rows = table(folder / "cells.csv")
    for row in rows:
        row["host"] = host
    write_table(folder / "cells.csv", rows)
    change_environment(folder, host=host)


def test_merged_shards_have_the_cells_of_an_unsharded_run(shards, uninterrupted, tmp_path):
    whole, _ = uninterrupted
    parts = [set(cells_by_key(folder)) for folder in shards]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert sum(bool(part) for part in parts) > 1
    done = merge(shards, tmp_path / "merged")
    assert done.returncode == 0, done.stderr
    merged, alone = cells_by_key(tmp_path / "merged"), cells_by_key(whole)
    assert set(merged) == set(alone)
    for cell, row in merged.items():
        for column in filter(EXACT.match, row):
            if column != "bytes_device_peak":
                assert row[column] == alone[cell][column], (cell, column)
    for name in ("samples.csv", "growth.csv"):
        count = lambda where: {cell: len(lines) for cell, lines in lines_by_cell(where / name).items()}
        assert count(tmp_path / "merged") == count(whole)
    names = lambda where: {b["name"] for b in json.loads((where / "benchmark.json").read_text())["benchmarks"]}
    assert names(tmp_path / "merged") == names(whole)


def test_the_order_of_folders_changes_nothing(shards, tmp_path):
    assert merge(shards, tmp_path / "a").returncode == 0
    assert merge(shards[::-1], tmp_path / "b").returncode == 0
    assert (tmp_path / "a" / "cells.csv").read_text() == (tmp_path / "b" / "cells.csv").read_text()


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
    listed = kvlab("run", config, "--list-shards", SHARDS)
    assert listed.returncode == 0, listed.stderr
    for shard, folder in enumerate(shards, 1):
        points = {f"{row['experiment']} {row['workload']} b{row['batch']} s{row['seq_len']}" for row in table(folder / "cells.csv")}
        lines = [line for line in listed.stdout.splitlines() if line.startswith(f"  {shard}/{SHARDS} ")]
        assert {point for point in points if any(point in line for line in lines)} == points
        assert len(lines) == len(points) + 1  # and its sum


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/", "-1/2"])
def test_bad_shards_are_refused(config, tmp_path, shard):
    assert_refused(run(config, tmp_path / "out", f"--shard={shard}"), "--shard", "i from 1 to n")
    assert not (tmp_path / "out").exists()


def test_a_shard_resumes_as_that_shard_alone(config, copies):
    assert run(config, copies[0], "--shard", f"1/{SHARDS}", "--resume").returncode == 0
    assert_refused(run(config, copies[0], "--shard", f"2/{SHARDS}", "--resume"), "--resume", "shard was", "1/3", "2/3")


def test_a_missing_shard_is_named(shards, tmp_path):
    assert_refused(merge(shards[:-1], tmp_path / "out"), "3/3", "missing", "--partial")
    assert merge(shards[:-1], tmp_path / "out", "--partial").returncode == 0


@pytest.mark.parametrize("name", ["cells.csv", "samples.csv", "growth.csv"])
def test_torn_files_are_refused(copies, tmp_path, name):
    path = next(folder for folder in copies if len((folder / name).read_text().splitlines()) > 1) / name
    text = path.read_text()
    path.write_text(text[:-20])
    assert_refused(merge(copies, tmp_path / "out"), str(path), "torn")
    if name != "cells.csv":
        path.write_text(text[: text[:-1].rindex("\n") + 1])  # between two lines
        assert_refused(merge(copies, tmp_path / "out"), "steps, but")
    assert not (tmp_path / "out").exists()


def test_unfinished_folders_are_refused(copies, tmp_path):
    change_environment(copies[0], finished="")
    assert_refused(merge(copies, tmp_path / "out"), str(copies[0]), "not finished", "--resume")


def test_another_config_is_refused(copies, tmp_path):
    (copies[1] / "config.toml").write_text((copies[1] / "config.toml").read_text() + "\nseed = 2\n")
    assert_refused(merge(copies, tmp_path / "out"), str(copies[1]), "two configs")


@pytest.mark.parametrize("change", [{"kvlab__git_commit": "0" * 40}, {"kvlab__binary": "0" * 16}, {"compiler": "other"}])
def test_another_binary_is_refused(copies, tmp_path, change):
    change_environment(copies[1], **change)
    assert_refused(merge(copies, tmp_path / "out"), str(copies[1]), "two binaries", *[str(v) for v in change.values()])


def test_duplicates_that_disagree_are_refused_and_copies_are_not(copies, tmp_path):
    again = shutil.copytree(next(f for f in copies if len(table(f / "cells.csv")) > 2), tmp_path / "again")
    assert merge([*copies, again], tmp_path / "out").returncode == 0
    assert len(cells_by_key(tmp_path / "out")) == sum(len(table(f / "cells.csv")) for f in copies)
    cell = change_row(again, step_p50_us="1.5")
    assert_refused(merge([*copies, again], tmp_path / "other"), cell, "disagree", "step_p50_us", "1.5")


def test_hosts_keep_their_times_and_must_agree_on_the_rest(copies, uninterrupted, tmp_path):
    whole = shutil.copytree(uninterrupted[0], tmp_path / "whole")
    as_of_another_host(whole, "other")
    done = merge([*copies, whole], tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "out" / "cells.csv")
    for host in {row["host"] for row in rows}:
        assert len([row for row in rows if row["host"] == host]) == len(rows) / 2
    assert [row for row in rows if row["host"] == "other"]
    samples = table(tmp_path / "out" / "samples.csv")
    assert len({row["host"] for row in samples}) == 2
    cell = change_row(whole, err_rel_l2="0.5")
    done = merge([*copies, whole], tmp_path / "differs")
    assert done.returncode == 1
    assert re.search(rf"finding: hosts disagree: '{re.escape(cell)}': err_rel_l2 is .*\b0\.5 on other ", done.stderr)
    assert len(json.loads((tmp_path / "differs" / "env.json").read_text())["findings"]) == 1


def test_merge_refuses_what_is_no_run(tmp_path, shards):
    assert_refused(merge([tmp_path], tmp_path / "out"), "no results folder")
    assert_refused(merge(shards, shards[0]), "already holds results")
