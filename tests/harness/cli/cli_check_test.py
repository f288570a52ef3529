"""`kvlab check-results`: what it computes again, and that each kind of mistake is found."""

import json

import pytest
from program import HOME, change_json, change_row, kvlab, succeeded, table, write_table


def assert_found(folder, *parts):
    done = kvlab("check-results", folder)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("finding: ")]
    assert any(all(part in line for part in parts) for line in found), done.stdout


def without_samples(folder):
    for large in ("samples.csv", "growth.csv"):
        (folder / large).unlink()


def test_what_travels_with_a_folder_is_enough(copy):
    without_samples(copy)
    found = json.loads(succeeded(kvlab("check-results", copy, "--json")).stdout)
    assert found["medians"] > 0 and found["closed_forms"] > 0


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


@pytest.mark.parametrize("name, change, said", [
    ("config.toml", lambda text: text.replace("repetitions = 5", "repetitions = 6"), "config.toml has changed since the run"),
    ("samples.csv", lambda text: text[: text[:-1].rindex("\n") + 1], "benchmark.json differs from samples.csv"),  # without its last line
    ("cells.csv", lambda text: text[:-5], "the last line is incomplete"),
])
def test_a_changed_text_is_found(copy, name, change, said):
    (copy / name).write_text(change((copy / name).read_text()))
    assert_found(copy, said)


@pytest.mark.parametrize("change, said", [
    (lambda value: value["benchmarks"][0].update(real_time=value["benchmarks"][0]["real_time"] / 2), "interval"),
    (lambda value: [entry.update(name=entry["name"] + " draft") for entry in value["benchmarks"]], "has a median in cells.csv but none in benchmark.json"),
    # An earlier version wrote means.
    (lambda value: value["context"].pop("kvlab_real_time"), "cells cannot be recomputed; measure them again"),
])
def test_changed_medians_are_found_without_samples(copy, change, said):
    without_samples(copy)
    change_json(copy / "benchmark.json", change)
    assert_found(copy, said)


def test_a_folder_of_which_nothing_can_be_computed_again_does_not_hold(copy):
    columns = {name: "" for name in table(copy / "cells.csv")[0] if name.startswith(("bytes_", "step_", "cold_", "ratio_", "append_total_"))}
    rows = [row | columns for row in table(copy / "cells.csv")]
    write_table(copy / "cells.csv", rows)
    assert_found(copy, "nothing could be recomputed")


def test_an_environment_without_a_commit_is_found(copy):
    change_json(copy / "env.json", lambda env: env["kvlab"].pop("git_commit"))
    assert_found(copy, "env.json lacks kvlab/git_commit")


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
