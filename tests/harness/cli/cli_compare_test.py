"""`kvlab compare`: two runs of one config, cell by cell."""

import json
import re
from pathlib import Path

import pytest
from program import ENV, HOME, assert_refused, change_json, kvlab, succeeded, table, write_table


def cells(before, after, *options, code=0):
    done = kvlab("compare", before, after, "--json", *options)
    assert done.returncode == code, done.stdout + done.stderr
    return {cell["cell"]: cell for cell in json.loads(done.stdout)["cells"]}


def test_ratios_are_of_the_second_over_the_first(results, copy):
    cell = table(copy / "cells.csv")[0]["cell"]
    change_json(copy / "benchmark.json", lambda value: [entry.update(real_time=1000 * entry["real_time"]) for entry in value["benchmarks"]
                                                        if entry["name"] == cell])  # fmt: skip
    changed = cells(results, copy, "--fail-if", "slower:1.05", code=1)[cell]
    assert changed["time"]["ratio"] == pytest.approx(1000) and changed["time"]["verdict"] == "slower"
    low, high = changed["time"]["interval"]
    assert 1 < low < 1000 < high and changed["time"]["confidence"] > 0.95  # Holm: many cells are compared
    assert changed["limits_passed"] == ["slower"]
    assert cells(copy, results, "--fail-if", "slower:1.05")[cell]["time"]["verdict"] == "faster"
    assert cells(results, copy, "--fail-if", "slower:2000")[cell]["limits_passed"] == []
    text = kvlab("compare", results, copy).stdout
    assert cell in text and "1 slower" in text and len(text.splitlines()) <= 20


@pytest.mark.parametrize("column, value, limit, passed", [
    ("bytes_payload", "999999999", "bytes", True),
    ("bytes_payload", "1", "bytes", False),  # it shrank
    ("err_rel_l2", "0.5", "error", True),
    ("err_rel_l2", "0", "error", False),
    ("status", "failed", "slower", True),
])
def test_limits(results, copy, column, value, limit, passed):
    first, *others = table(copy / "cells.csv")
    write_table(copy / "cells.csv", [first | {column: value}, *others])
    changed = cells(results, copy, "--fail-if", limit, code=1 if passed else 0)[first["cell"]]
    assert bool(changed["limits_passed"]) == passed
    assert column == "status" or changed["bytes" if limit == "bytes" else "error"]["after"] == float(value)
    succeeded(kvlab("compare", results, copy))  # without a limit nothing fails


def test_a_missing_cell_fails_under_any_limit(results, copy):
    rows = table(results / "cells.csv")
    write_table(copy / "cells.csv", rows[1:])
    gone, count = rows[0]["cell"], len(rows)
    for limit in ("slower", "error", "bytes:9"):
        changed = cells(results, copy, "--fail-if", limit, code=1)[gone]
        assert (changed["status"], changed["limits_passed"]) == ("missing", ["missing"])
    failed = kvlab("compare", results, copy, "--fail-if", "slower")
    assert failed.returncode == 1 and f"Cells in both runs: {count - 1}; only in the first (missing): 1" in failed.stdout
    assert any(line.split()[-2:] == ["-", "missing"] for line in failed.stdout.splitlines() if gone in line)
    assert cells(results, copy, "--fail-if", "slower", "--allow-missing")[gone]["limits_passed"] == []
    assert cells(results, copy)[gone]["status"] == "missing"  # without a limit nothing fails
    # The other way around the cell is new: listed, and no failure.
    assert cells(copy, results, "--fail-if", "slower,error,bytes")[gone]["status"] == "new"
    assert any("new" in line.split() for line in kvlab("compare", copy, results).stdout.splitlines() if gone in line)


def test_what_cannot_be_compared(results, copy, tmp_path):
    assert_refused(kvlab("compare", results, tmp_path), "is not a results folder")
    rows = table(copy / "cells.csv")
    for row in rows:
        row["cell"] += " other"
    write_table(copy / "cells.csv", rows)
    assert_refused(kvlab("compare", results, copy), "no cell in common")
    write_table(copy / "cells.csv", rows + [rows[0] | {"host": "elsewhere"}])
    assert_refused(kvlab("compare", results, copy), "several machines")


def test_a_run_is_compared_with_the_last_one_of_its_config_unasked(tmp_path):
    (tmp_path / "configs").symlink_to(HOME / "configs")
    (tmp_path / "results" / "local" / "notes").mkdir(parents=True)

    def said(name, steps):
        done = kvlab("run", HOME / "tests/harness/cli/contract/decode.toml", "--no-plots", {"measure.steps": steps}, env={**ENV, "KVLAB_HOME": str(tmp_path)})
        folder = Path(re.search(r"^results: (.*)$", succeeded(done).stdout, re.M)[1])
        folder.rename(folder.with_name(name))  # its own name has its second
        return done.stdout

    assert "last run" not in said("first", 8) and "last run" not in said("other", 7)
    assert re.search(r"this config's last run, .*/first:\nCells in both runs: 8; only in the first \(missing\): 0", said("second", 8))
    (tmp_path / "results/local/second/cells.csv").write_text("broken\n1\n")
    assert "Not compared with this config's last run: " in said("third", 8)
