"""The contract of every experiment that the program lists, on its smallest config, contract/NAME.toml: killed, on a full disk or in
shards it gives the cells of a whole run; its folder holds together, and its times are those of its samples."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from program import PROGRAM, assert_complete, assert_refused, cells_by_key, counted, kvlab, lines_by_cell, run, succeeded, table, write_table
from recomputed import assert_recomputed

CONFIGS = Path(__file__).with_name("contract")
EXPERIMENTS = [listed["name"] for listed in json.loads(kvlab("list", "--json").stdout)["experiments"]]
# Columns that another run of the same cells measures anew; and where requests come by the clock, those that depend on when they came.
MEASURED = re.compile(r"_us$|_us_|_gbps$|_per_s|_seconds$|ratio_|bound|multiply_add_peak|speedup$|^(rss_peak_bytes|noise|discarded_repetitions)$"
                      r"|^(cold_)?(steal|others|disturbed|ceiling|projections|cache)_share$")  # fmt: skip
BY_THE_CLOCK = {"serve": re.compile(r"_s$|_ms$|_(s|ms)_ci_|_p\d\d$|_peak$|_mean$|_mean_bytes$|held_peak_bytes|_share$|clock_|replay_|preemptions")}
JUDGED_TOGETHER = {"task"}  # a cell's verdict depends on all others'
TIMED = {"samples.csv", "growth.csv"}  # tables of times; others are the same in every run


class Whole(NamedTuple):
    name: str
    config: Path
    folder: Path
    said: dict  # the run's --json
    operations: str  # a letter for each of its file operations


@pytest.fixture(scope="module", params=EXPERIMENTS)
def whole(request, file_operations, tmp_path_factory):
    """A run of the smallest config, that nothing disturbs."""
    config = CONFIGS / f"{request.param}.toml"
    assert config.exists(), f"a new experiment needs its smallest config, of two sweep points, as {config}"
    folder = tmp_path_factory.mktemp(request.param) / "run"
    done, operations = counted(file_operations, [PROGRAM, "run", config, "--out", folder, "--no-plots", "--json"])
    succeeded(done)
    rows = table(folder / "cells.csv")
    assert {row["experiment"] for row in rows} == {request.param} and {row["status"] for row in rows} == {"ok"}, [row["reason"] for row in rows]
    return Whole(request.param, config, folder, json.loads(done.stdout), operations)


def side_tables(folder):
    return sorted({path.name for path in folder.glob("*.csv")} - {"cells.csv"})


def kept(row, name):
    """A row without what another run measures anew."""
    clock = BY_THE_CLOCK.get(name)
    is_kept = lambda column: not (MEASURED.search(column) or clock and clock.search(column) or column == "verdict" and row.get("versus")
                                  and row.get("ratio_confidence"))  # fmt: skip
    return {column: value for column, value in row.items() if is_kept(column)}


def assert_same(folder, whole):
    """The whole run's files, cells each once, and their rows in every table."""
    assert_complete(folder, whole.folder)
    cells, expected = cells_by_key(folder), cells_by_key(whole.folder)
    for cell, row in cells.items():
        assert kept(row, whole.name) == kept(expected[cell], whole.name)
    for name in side_tables(whole.folder):
        lines, wanted = lines_by_cell(folder / name), lines_by_cell(whole.folder / name)
        assert lines.keys() == wanted.keys(), name
        assert lines == wanted or name in TIMED or whole.name in BY_THE_CLOCK, name
    assert (folder / "config.toml").read_bytes() == (whole.folder / "config.toml").read_bytes()


def checked(folder, code=0):
    done = kvlab("check-results", folder, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_folder_holds_together_and_its_times_are_those_of_its_samples(whole):
    rows, found = table(whole.folder / "cells.csv"), checked(whole.folder)
    timed, compared, medians = assert_recomputed(whole.folder)
    assert (found["findings"], found["cells"], found["ratios"], found["medians"]) == ([], len(rows), compared, medians)
    assert compared == sum(bool(row.get("ratio_confidence")) for row in rows)
    has_times = any(name.endswith("_p50_us") and row[name] for row in rows for name in row)
    assert bool(timed) == has_times == bool({*side_tables(whole.folder)} & TIMED)
    described = [column["name"] for column in json.loads((whole.folder / "columns.json").read_text())]
    assert described == (whole.folder / "cells.csv").read_text().splitlines()[0].split(",")


def test_its_json_and_the_summarys_are_its_cells(whole):
    again = json.loads(succeeded(kvlab("summary", whole.folder, "--json")).stdout)
    rows = table(whole.folder / "cells.csv")
    for said in (whole.said, again):
        assert said["finished"] is True and said["status"] == {"ok": len(rows)}
        assert [(answer["question"], answer["cell"]) for answer in said["answers"]] == [(a["question"], a["cell"]) for a in again["answers"]]
        for cell, row in zip(said["cells"], rows, strict=True):
            assert cell.keys() == {name for name, value in row.items() if value}
            assert {name: str(value) for name, value in cell.items() if isinstance(value, (str, int))}.items() <= row.items()
    assert len(succeeded(kvlab("summary", whole.folder, "--table", "full")).stdout.splitlines()) > 5


def test_a_dry_run_counts_its_cells_and_writes_nothing(whole, tmp_path):
    done = succeeded(kvlab("run", whole.config, "--out", tmp_path / "out", "--dry-run", "--json", cwd=tmp_path))
    plan, rows = json.loads(done.stdout), table(whole.folder / "cells.csv")
    assert (plan["all"]["cells"], plan["all"]["measured"], plan["all"]["points"]) == (len(rows), len(rows), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_run_equals_itself(whole):
    done = succeeded(kvlab("compare", whole.folder, whole.folder, "--json", "--fail-if", "slower,error,bytes"))
    cells = json.loads(done.stdout)["cells"]
    assert {cell["cell"] for cell in cells} == cells_by_key(whole.folder).keys()
    for cell in cells:
        assert (cell["bytes"], cell["error"], cell["limits_passed"]) == (None, None, [])
        assert cell["time"] is None or (cell["time"]["ratio"], cell["time"]["verdict"]) == (1, "ambiguous")


@pytest.mark.parametrize("fault", ["kill", "full"])
def test_it_goes_on_where_it_was_stopped(whole, file_operations, fault, tmp_path):
    """Stopped when the last cells come to be written, after their samples: by a signal, or since the disk is full."""
    # Only writes of cells.csv are counted: a machine's first run also writes the tokens of its text.
    out, last = tmp_path / "out", whole.operations.count("c")
    done, _ = counted(file_operations, [PROGRAM, "run", whole.config, "--out", out, "--no-plots"], letters="c", **{fault: last})
    assert done.returncode == {"kill": -9, "full": 2}[fault], done.stderr
    if fault == "full":
        assert_refused(done, "cannot write", str(out), "No space left on device")
        assert (out / "cells.csv").read_bytes().endswith(b"\n")
    before = lines_by_cell(out / "cells.csv")
    assert 0 < len(before) < len(cells_by_key(whole.folder))
    samples = {name: lines_by_cell(out / name) for name in side_tables(out)}
    succeeded(run(whole.config, out, "--resume"))
    assert_same(out, whole)
    after = lines_by_cell(out / "cells.csv")
    for cell, line in before.items():  # byte for byte
        assert after[cell] == line or whole.name in JUDGED_TOGETHER
        assert all(lines_by_cell(out / name).get(cell) == lines.get(cell) for name, lines in samples.items())
    files = {path: path.read_bytes() for path in out.iterdir() if path.name != "env.json"}
    succeeded(run(whole.config, out, "--resume"))
    assert files == {path: path.read_bytes() for path in out.iterdir() if path.name != "env.json"}


def test_shards_are_a_whole_together(whole, tmp_path):
    parts = [tmp_path / "1", tmp_path / "2"]
    for i, part in enumerate(parts, 1):
        succeeded(run(whole.config, part, "--shard", f"{i}/2"))
    assert_refused(kvlab("merge", parts[0], "--out", tmp_path / "merged"), "2/2", "missing", out=tmp_path / "merged")
    first, second = (cells_by_key(part) for part in parts)
    assert first and second and not first.keys() & second.keys()
    succeeded(kvlab("merge", *parts[::-1], "--out", tmp_path / "merged", "--no-plots"))
    assert_same(tmp_path / "merged", whole)
    assert checked(tmp_path / "merged")["findings"] == []
    assert assert_recomputed(tmp_path / "merged") == assert_recomputed(whole.folder)


def test_a_lost_row_is_found(whole, tmp_path):
    """The rows of a cell in any other table, or all of the table: no check passes it over, and no merge takes it for a part."""
    for name in side_tables(whole.folder):
        folder = shutil.copytree(whole.folder, tmp_path / name)
        rows = table(folder / name)
        write_table(folder / name, [row for row in rows if row["cell"] != rows[0]["cell"]])
        for is_there in (True, False):
            if is_there or name not in TIMED:  # a folder travels without its samples
                assert any(name in finding or "samples.csv" in finding for finding in checked(folder, code=1)["findings"])
            assert_refused(kvlab("merge", folder, "--out", tmp_path / "out"), name, out=tmp_path / "out")
            (folder / name).unlink(missing_ok=True)
