"""Reading results folders: what empty fields mean, what columns.json says, what folders of earlier versions lack, and what a broken file gets."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest
from data import CELL_COLUMNS, load_run, load_runs
from page import flatten, run_line
from prepare import measured
from support import PLOTS, left_out, refused, report, reported
from synthetic import LATER, STAGES, STEP, describe, described, edit, on_hosts, synthetic_run


@pytest.fixture
def folder(tmp_path):
    return synthetic_run(tmp_path / "run", lengths=(256,))


def in_a_process(*arguments, **options) -> subprocess.CompletedProcess:
    """`python plots/report.py ARGUMENTS` with what a process alone can be given."""
    command = [sys.executable, PLOTS / "report.py", "--figures", "svg", *arguments]
    return subprocess.run(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **options})


def test_a_folder_whose_name_is_no_utf8_has_a_report(tmp_path):
    folder = synthetic_run(tmp_path / os.fsdecode(b"caf\xe9"), lengths=(256,))
    done = in_a_process(folder)
    assert done.returncode == 0, done.stderr
    assert b"caf\xe9/report.html" in done.stdout
    assert "<title>kvlab · caf\ufffd" in (folder / "report.html").read_text(encoding="utf-8")


def test_empty_fields_are_not_measured(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run"), "run")
    unsupported = run.cells.filter(run.cells["status"] == "unsupported")
    assert unsupported["step_p50_us"].to_list() == [None]


def test_what_a_spreadsheet_has_saved_is_read(folder):
    """With a byte-order mark, its own line ends and a blank last line."""
    before = load_run(folder, "run").cells
    text = (folder / "cells.csv").read_text(encoding="utf-8")
    (folder / "cells.csv").write_bytes(("\ufeff" + text.replace("\n", "\r\n") + "\r\n").encode())
    assert load_run(folder, "run").cells.equals(before)


def test_memory_is_compared_with_contiguous_f32(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(4096,)), "run").cells)
    ratios = dict(zip(cells["variant"], cells["memory_vs_f32"]))
    assert 1.0 <= ratios["contiguous/f32/full"] < 1.001  # 4 KiB of workspace on 16 MiB
    assert 0.5 <= ratios["contiguous/f16/full"] < 0.501
    assert 1.5 <= ratios["doubling/f32/full"] < 1.501


HEADER = [*CELL_COLUMNS, "step_p50_us", "unheard_of"]


def cells_csv(*changes: dict[str, str], end: str = "\n") -> str:
    """A row of ones for each of the changes."""
    rows = [dict.fromkeys(HEADER, "1") | change for change in changes]
    return "\n".join(",".join(row) for row in (HEADER, *(row.values() for row in rows))) + end


@pytest.mark.parametrize(("name", "content", "complaint"), [
    ("cells.csv", "", "the file is empty"),
    ("cells.csv", cells_csv(), "a header and no rows"),
    ("cells.csv", cells_csv({}, end=""), ":2: the last line is incomplete"),
    ("cells.csv", cells_csv({}) + "1,1,1\n", ":3: "),
    *(("cells.csv", cells_csv({}, {column: "soon"}), f":3: {column} is 'soon', which is not a number") for column in ("step_p50_us", "seq_len", "unheard_of")),
    ("cells.csv", "cell,variant\n1,2\n", "missing columns device, experiment"),
    ("cells.csv", "\x00\xff", "cannot be read"),
    ("cells.csv", cells_csv({"variant": ""}), ":2: variant is empty"),
    ("cells.csv", cells_csv({"variant": "x" * 5000}), ":2: variant has 5,000 characters"),
    ("env.json", "[1]", "a JSON list where an object is expected"),
    ("env.json", '{"cpu": []}', "cpu must be an object"),
    ("env.json", '{"cpu": null}', "cpu must be an object"),
    ("env.json", '{"cpu": {"model": ["a", "b"]}}', "cpu.model must be text"),
    ("env.json", '{"config": {"name": {"a": 1}}}', "config.name must be text"),
    ("env.json", '{"model": {"name": 7}}', "model.name must be text"),
    ("env.json", "[" * 100_000, "nested too deep"),
    ("env.json", '{"cpu": {"bytes": ' + "1" * 10_000 + "}}", "cannot be read"),
    ("env.json", "{", ":1: not valid JSON"),
    ("columns.json", '[{"name": ', ":1: not valid JSON"),
    ("columns.json", "[" * 100_000, "nested too deep"),
    *(("columns.json", content, "needs an array of objects") for content in (
        '{"name": "cell"}', '[{"name": "cell"}]', "[7]", "3", '[{"name": [], "type": "text"}]', '[{"name": "cell", "type": 3}]')),
], ids=lambda text: text[-40:])
def test_a_broken_file_gets_one_line(folder, name, content, complaint):
    (folder / name).write_bytes(content.encode("latin-1"))
    said = refused(folder)
    assert name in said and complaint in said


def test_folders_that_cannot_be_read_or_written_get_one_line(folder, tmp_path):
    assert "no such folder" in refused(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "cells.csv: no such file" in refused(tmp_path / "empty")
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refused(folder, "--out", tmp_path / "file")


def test_a_long_field_is_read(tmp_path):
    folder = edit(synthetic_run(tmp_path / "run", lengths=(256,)), lambda row: row | {"reason": "x" * 500_000})
    assert "x" * 500_000 in load_run(folder, "run").cells["reason"].to_list()


@pytest.mark.parametrize("content", ["{}", '{"cpu": {}, "notes": [], "free_bytes": 1e400, "used_bytes": NaN}'])
def test_what_the_environment_lacks_is_not_recorded(folder, content):
    (folder / "env.json").write_text(content)
    run = load_run(folder, "run")
    assert "machine not recorded" in run_line(run) and "halves" not in run_line(run)
    assert "halves" in run_line(replace(run, cells=run.cells.with_columns(k_order=pl.lit("halves"))))
    list(flatten(run.env))


def test_hosts_of_a_merged_run_are_runs_of_their_own(tmp_path):
    folder = on_hosts(synthetic_run(tmp_path / "run", lengths=(256,), growth_to=8), "cells.csv", "growth.csv")
    runs = load_runs([folder])
    assert [run.name for run in runs] == ["run on n1", "run on n2"]
    assert [run.host for run in runs] == ["n1", "n2"]
    for run in runs:
        assert set(run.cells["host"]) == set(run.growth["host"]) == {run.host}
        assert run.cells["cell"].n_unique() == run.cells.height
    reported(folder)
    assert "run on n1, run on n2" in (folder / "report.html").read_text()


def test_control_characters_reach_no_picture_and_no_terminal(tmp_path):
    """No SVG may hold most of them; the converter ends the program where one does."""
    odd = "a\x00b\x1b[2J\x7f\x9b\ufffe²²/f32"
    renamed = lambda row: row | ({"variant": odd} if row["variant"] == "contiguous/f32/full" else {})
    folder = edit(synthetic_run(tmp_path / "run", lengths=(256, 512), env={"cpu": {"model": "CPU \x1b[2J \ud800"}}), renamed)
    reported(folder, "--figures", "svg,png")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "a\ufffdb\ufffd[2J\ufffd\ufffd\ufffd²²/f32" in page and "CPU \ufffd[2J" in page
    (folder / "cells.csv").write_text("cell,variant\n\x1b[2J")
    assert "\x1b" not in report(folder).stderr


def test_a_full_disk_leaves_the_earlier_report_whole(folder, tmp_path):
    reported(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # noqa: E731  # less than a page
    for arguments in ([folder], [folder, "--out", tmp_path / "new"]):
        done = in_a_process(*arguments, preexec_fn=limit)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1) and f"{arguments[-1]}: cannot be written (File too large)" in done.stderr.decode()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "new").exists()


def test_standard_output_that_cannot_be_written_gets_one_line(folder):
    with open("/dev/full", "w") as full:
        done = in_a_process(folder, stdout=full)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1) and b"standard output: cannot be written" in done.stderr


@pytest.mark.parametrize("entries, state", [([described("state", "text"), described("hits", "integer")], "42"), ([], "warm")])
def test_types_come_from_columns_json_or_from_the_first_value(folder, entries, state):
    """A column that columns.json lacks is a number unless its first value is a word."""
    cells = load_run(describe(edit(folder, lambda row: row | {"state": state, "hits": "7"}), *entries), "run").cells
    assert (cells["state"][0], cells["hits"][0]) == (state, 7)


@pytest.mark.parametrize("lacks", ["columns.json", "axes", "stages"])
def test_a_folder_of_an_earlier_version_is_refused(folder, lacks):
    if lacks == "columns.json":
        (folder / lacks).unlink()
    elif lacks == "axes":
        (folder / "columns.json").write_text(json.dumps([described("cell", "text")]))
    else:
        edit(folder, lambda row: {name: value for name, value in row.items() if name not in STAGES})
    assert refused(folder).endswith(f"{folder}: an earlier version wrote it, without columns that charts need; measure it again")


def test_a_renamed_column_keeps_its_earlier_name(folder):
    header, _, rest = (folder / "cells.csv").read_text().partition("\n")
    header = header.replace(",ceiling_share", ",read_share").replace(",status", ",state")
    (folder / "cells.csv").write_text(f"{header}\n{rest}")
    describe(folder, described("read_share", "number", "ceiling_share"), described("state", "text", "status"))
    cells = load_run(folder, "run").cells
    assert cells["ceiling_share"].to_list() == cells["read_share"].to_list()
    assert "bandwidth" not in left_out(folder)


def test_meanings_are_tooltips_of_the_report(tmp_path):
    plain, explained = (describe(synthetic_run(tmp_path / name, lengths=(256,)), *entries) for name, entries in (("plain", []), ("explained", [STEP])))
    for folder in (plain, explained):
        reported(folder)
    meaning = "step_p50_us [us]: append + &lt;view&gt; + attend"
    page = (explained / "report.html").read_text()
    assert f'<button type="button" class="sort" aria-description="{meaning}">time / ' in page
    assert f'<span class="tip" aria-hidden="true">{meaning}</span>' in page
    assert f'<abbr title="{meaning}"><a href="#column-step_p50_us">step_p50_us</a></abbr>' in page
    assert '<dt id="column-step_p50_us">step_p50_us [us]</dt><dd>append + &lt;view&gt; + attend</dd>' in page
    assert "<abbr" not in (plain / "report.html").read_text()
    for name in ("latency", "pareto"):  # the charts are the same
        paths = [(folder / f"figures/{name}.svg").read_text().count("<path") for folder in (plain, explained)]
        assert paths[0] == paths[1]


def test_a_chart_of_a_column_that_is_absent_is_left_out(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,), also=LATER)
    edit(folder, lambda row: {name: value for name, value in row.items() if name not in ("series", "fork_p50_us")})
    reasons = left_out(folder)
    assert reasons["checkpoint"] == "no cell has fork_p50_us and seq_len"
    assert 'column "series"' in reasons["budget"]
    assert "memory" not in reasons


def test_a_run_of_one_experiment_is_drawn_without_the_columns_of_others(tmp_path):
    folder = edit(synthetic_run(tmp_path / "run", lengths=(256,), also=["budget"]), lambda row: row if row["experiment"] == "budget" else None)
    edit(folder, lambda row: {name: value for name, value in row.items() if value or name in ("held_bytes_per_token", *STAGES)})
    assert "step_p50_us" not in (folder / "cells.csv").read_text().partition("\n")[0]
    assert "budget" not in left_out(folder)
