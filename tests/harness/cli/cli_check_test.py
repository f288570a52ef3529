"""`kvlab check-results`: what it computes again, and that each kind of mistake is found."""

import pytest
from program import HOME, assert_refused, change_json, change_row, cut_lines, kvlab, succeeded, table, write_table


def assert_found(folder, *parts):
    done = kvlab("check-results", folder)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("finding: ")]
    assert any(all(part in line for part in parts) for line in found), done.stdout


def without_samples(folder):
    for large in ("samples.csv", "growth.csv"):
        (folder / large).unlink()


def holds(folder):
    return succeeded(kvlab("check-results", folder)).stdout


def test_what_travels_with_a_folder_is_enough(copy):
    without_samples(copy)
    assert " 0 medians" not in holds(copy)


@pytest.mark.parametrize("changes, parts", [
    ({"bytes_predicted": "64"}, ["the closed form gives"]),
    ({"bytes_payload": "64"}, ["payload, metadata and slack"]),
    ({"step_p50_us": "0.001"}, ["step_p50_us"]),
    ({"step_ci_high_us": "1e6"}, ["step_p50_us and its interval"]),
    ({"ratio_p50": "0.5"}, ["ratio_p50 and its interval"]),
    ({"ratio_ci_low": "0.999"}, ["ratio_p50 and its interval"]),
    ({"verdict": "splendid"}, ["verdict is 'splendid'"]),
    ({"cell": "decode gaussian b9 s9 concat"}, ["is not a cell of config.toml"]),
])  # fmt: skip
def test_a_changed_number_is_found(copy, changes, parts):
    cell = change_row(copy, **changes)
    assert_found(copy, changes.get("cell", cell), *parts)


def test_missing_and_doubled_cells_are_found(copy):
    rows = table(copy / "cells.csv")
    write_table(copy / "cells.csv", rows[1:])
    assert_found(copy, rows[0]["cell"], "not in cells.csv")
    write_table(copy / "cells.csv", [*rows, rows[0]])
    assert_found(copy, rows[0]["cell"], "has two rows")


def test_another_config_is_found(copy):
    path = copy / "config.toml"
    path.write_text(path.read_text().replace("repetitions = 5", "repetitions = 6"))
    assert_found(copy, "config.toml has changed since the run")


def test_other_samples_are_found(copy):
    cut_lines(copy / "samples.csv", 1)
    assert_found(copy, "benchmark.json differs from samples.csv")


def test_changed_medians_are_found(copy):
    def halve(value):
        value["benchmarks"][0]["real_time"] /= 2

    without_samples(copy)
    change_json(copy / "benchmark.json", halve)
    assert_found(copy, "interval")


def test_missing_medians_are_found(copy):
    def rename(value):
        value["benchmarks"] = [entry | {"name": entry["name"] + " draft"} for entry in value["benchmarks"]]

    without_samples(copy)
    change_json(copy / "benchmark.json", rename)
    assert_found(copy, "has a median in cells.csv but none in benchmark.json")


def test_means_of_an_earlier_version_are_no_medians(copy):
    without_samples(copy)
    change_json(copy / "benchmark.json", lambda value: value["context"].pop("kvlab_real_time"))
    assert_found(copy, "cells cannot be recomputed; measure them again")


def test_a_folder_of_which_nothing_can_be_computed_again_does_not_hold(copy):
    columns = {name: "" for name in table(copy / "cells.csv")[0] if name.startswith(("bytes_", "step_", "cold_", "ratio_", "append_total_"))}
    rows = [row | columns for row in table(copy / "cells.csv")]
    write_table(copy / "cells.csv", rows)
    assert_found(copy, "nothing could be recomputed")


def test_an_environment_without_a_commit_is_found(copy):
    change_json(copy / "env.json", lambda env: env["kvlab"].pop("git_commit"))
    assert_found(copy, "env.json lacks kvlab/git_commit")


def test_torn_and_foreign_folders(copy, tmp_path):
    text = (copy / "cells.csv").read_text()
    (copy / "cells.csv").write_text(text[:-5])
    assert_found(copy, "the last line is incomplete")
    assert_refused(kvlab("check-results", tmp_path), "not a results folder")


# Each leaves this list when it is measured again.
TO_BE_MEASURED_AGAIN = {"h200/gpu": "env.json lacks finished"}
# Their models are downloaded once somebody has accepted a licence, which a test does not.
UNDER_TERMS = ["epyc-2core/real_32k"]
COMMITTED = sorted(str(cells.parent.relative_to(HOME / "results")) for cells in (HOME / "results").glob("*/*/cells.csv")
                   if (cells.parent / "config.toml").exists())


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_folders_hold(name):
    if name in TO_BE_MEASURED_AGAIN:
        assert_found(HOME / "results" / name, TO_BE_MEASURED_AGAIN[name])
        return
    done = kvlab("check-results", HOME / "results" / name)
    if name in UNDER_TERMS and "whose terms are to be accepted first" in done.stdout:
        pytest.skip("the terms of the model's licence are not accepted here")
    succeeded(done)
