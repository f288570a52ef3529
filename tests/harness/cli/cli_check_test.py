"""`kvlab check-results`: what it computes again, and that each kind of mistake is found."""

import json
import shutil

import pytest
from program import HOME, assert_refused, change_row, kvlab, table, write_table


def change_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=1))


@pytest.fixture
def folder(uninterrupted, tmp_path):
    return shutil.copytree(uninterrupted[0], tmp_path / "run")


def assert_found(folder, *parts):
    done = kvlab("check-results", folder)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("finding: ")]
    assert any(all(part in line for part in parts) for line in found), done.stdout


def test_a_fresh_run_holds(folder):
    done = kvlab("check-results", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    count = len(table(folder / "cells.csv"))
    compared = sum(bool(row["versus"]) for row in table(folder / "cells.csv"))
    assert f"{count} cells; computed again: {count} closed forms, {count} intervals, {compared} ratios; all holds" in done.stdout


def test_what_travels_with_a_folder_is_enough(folder):
    for large in ("samples.csv", "growth.csv"):
        (folder / large).unlink()
    done = kvlab("check-results", folder)
    assert done.returncode == 0 and "0 intervals" not in done.stdout, done.stdout


@pytest.mark.parametrize("changes, parts", [
    ({"bytes_predicted": "64"}, ["the closed form gives"]),
    ({"bytes_payload": "64"}, ["payload, metadata and slack"]),
    ({"step_p50_us": "0.001"}, ["step_p50_us"]),
    ({"step_ci_high_us": "1e6"}, ["step_p50_us and its interval"]),
    ({"ratio_p50": "0.5"}, ["ratio_p50 and its interval"]),
    ({"ratio_ci_low": "0.999"}, ["ratio_p50 and its interval"]),
    ({"verdict": "splendid"}, ["verdict is 'splendid'"]),
    ({"cell": "decode gaussian b9 s9 concat"}, ["is no cell of config.toml"]),
])  # fmt: skip
def test_a_changed_number_is_found(folder, changes, parts):
    cell = change_row(folder, **changes)
    assert_found(folder, changes.get("cell", cell), *parts)


def test_missing_and_doubled_cells_are_found(folder):
    rows = table(folder / "cells.csv")
    write_table(folder / "cells.csv", rows[1:])
    assert_found(folder, rows[0]["cell"], "not in cells.csv")
    write_table(folder / "cells.csv", [*rows, rows[0]])
    assert_found(folder, rows[0]["cell"], "twice")


def test_another_config_is_found(folder):
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("repetitions = 5", "repetitions = 6"))
    assert_found(folder, "config.toml is not the one that ran")


def test_other_samples_are_found(folder):
    path = folder / "samples.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert_found(folder, "benchmark.json is not made of samples.csv")


def test_changed_medians_are_found(folder):
    def halve(value):
        value["benchmarks"][0]["real_time"] /= 2

    for large in ("samples.csv", "growth.csv"):
        (folder / large).unlink()
    change_json(folder / "benchmark.json", halve)
    assert_found(folder, "interval")


def test_an_environment_without_a_commit_is_found(folder):
    change_json(folder / "env.json", lambda env: env["kvlab"].pop("git_commit"))
    assert_found(folder, "env.json lacks kvlab/git_commit")


def test_torn_and_foreign_folders(folder, tmp_path):
    text = (folder / "cells.csv").read_text()
    (folder / "cells.csv").write_text(text[:-5])
    assert_found(folder, "torn")
    assert_refused(kvlab("check-results", tmp_path), "no results folder")


@pytest.mark.parametrize("name", ["epyc-2core/quickstart", "xeon-2core/quickstart", "xeon-2core/mla", "xeon-2core/everything"])
def test_committed_folders_hold(name):
    done = kvlab("check-results", HOME / "results" / name)
    assert done.returncode == 0, done.stdout
    assert " 0 closed forms" not in done.stdout
