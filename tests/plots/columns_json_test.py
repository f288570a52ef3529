"""columns.json: types, meanings and earlier names of columns; and folders of earlier versions."""

from __future__ import annotations

import csv
import json

import pytest
from data import BadResults, load_run
from support import first_line, left_out, report, reported
from synthetic import synthetic_run, write_csv
from synthetic_shape import STAGES, described as describe_all

STEP = {"name": "step_p50_us", "unit": "us", "type": "number", "meaning": "append + <view> + attend", "aliases": []}


def change(folder, describe=(), **columns):
    """Adds columns to every cell, and these entries to columns.json."""
    with (folder / "cells.csv").open() as file:
        rows = [{**row, **columns} for row in csv.DictReader(file)]
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    add_entries(folder, describe)
    return folder


def add_entries(folder, entries):
    names = {name for entry in entries for name in (entry["name"], *entry["aliases"])}
    others = [entry for entry in describe_all() if entry["name"] not in names]
    (folder / "columns.json").write_text(json.dumps([*others, *entries]))


def entry(name, kind, *aliases):
    return {"name": name, "unit": "", "type": kind, "meaning": "", "aliases": list(aliases)}


def test_types_come_from_columns_json(tmp_path):
    described = [entry("state", "text"), entry("hits", "integer")]
    cells = load_run(change(synthetic_run(tmp_path / "run"), described, state="42", hits="7"), "run").cells
    assert (cells["state"][0], cells["hits"][0]) == ("42", 7)


def test_a_column_that_columns_json_lacks_is_a_number_unless_its_first_value_is_a_word(tmp_path):
    cells = load_run(change(synthetic_run(tmp_path / "run"), state="warm", hits="7"), "run").cells
    assert (cells["state"][0], cells["hits"][0]) == ("warm", 7)


@pytest.mark.parametrize("lacks", ["columns.json", "axes", "stages"])
def test_a_folder_of_an_earlier_version_names_the_command_that_brings_it_up_to_date(tmp_path, lacks):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    if lacks == "columns.json":
        (folder / lacks).unlink()
    elif lacks == "axes":
        (folder / "columns.json").write_text(json.dumps([entry("cell", "text")]))
    else:
        with (folder / "cells.csv").open() as file:
            rows = [{name: value for name, value in row.items() if name not in STAGES} for row in csv.DictReader(file)]
        write_csv(folder / "cells.csv", list(rows[0]), rows)
    done = report(folder)
    assert done.returncode == 2
    assert first_line(done).endswith(f"run ./kvlab check-results --add-stages {folder}")


def test_a_renamed_column_keeps_its_earlier_name(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    header, _, rest = (folder / "cells.csv").read_text().partition("\n")
    described = [entry("read_share", "number", "ceiling_share"), entry("state", "text", "status")]
    header = header.replace(",ceiling_share", ",read_share").replace(",status", ",state")
    (folder / "cells.csv").write_text(f"{header}\n{rest}")
    add_entries(folder, described)
    cells = load_run(folder, "run").cells
    assert cells["ceiling_share"].to_list() == cells["read_share"].to_list()
    reported(folder)
    assert "bandwidth" not in left_out(folder)


@pytest.mark.parametrize(("content", "complaint"), [
    ('[{"name": ', "columns.json:1: not valid JSON"),
    ('{"name": "cell"}', "needs an array of objects"),
    ('[{"name": "cell"}]', "needs an array of objects"),
    ("[7]", "needs an array of objects"),
])
def test_a_broken_file_gets_one_line(tmp_path, content, complaint):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    (folder / "columns.json").write_text(content)
    with pytest.raises(BadResults, match="columns.json") as error:
        load_run(folder, "run")
    assert complaint in str(error.value) and "\n" not in str(error.value)


def test_a_wrong_number_is_told_with_its_line(tmp_path):
    folder = change(synthetic_run(tmp_path / "run", lengths=(256,)), [entry("hits", "integer")], hits="many")
    with pytest.raises(BadResults, match=r"cells.csv:2: hits is 'many', which is not a number"):
        load_run(folder, "run")


def test_meanings_are_tooltips_of_the_report(tmp_path):
    plain, described = (synthetic_run(tmp_path / name, lengths=(256,)) for name in ("plain", "described"))
    change(described, [STEP])
    for folder in (plain, described):
        reported(folder)
    meaning = "step_p50_us [us]: append + &lt;view&gt; + attend"
    page = (described / "report.html").read_text()
    assert f'<button type="button" class="sort" aria-description="{meaning}">time / ' in page
    assert f'<span class="tip" aria-hidden="true">{meaning}</span>' in page
    assert f'<abbr title="{meaning}"><a href="#column-step_p50_us">step_p50_us</a></abbr>' in page
    assert '<dt id="column-step_p50_us">step_p50_us [us]</dt><dd>append + &lt;view&gt; + attend</dd>' in page
    assert "<abbr" not in (plain / "report.html").read_text()
    for name in ("latency", "pareto"):  # the charts are the same
        assert (plain / f"figures/{name}.svg").read_text().count("<path") == (
            described / f"figures/{name}.svg"
        ).read_text().count("<path")


def test_a_chart_of_a_column_that_is_absent_is_left_out(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,), later=True)
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        del row["series"], row["fork_p50_us"]
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    reported(folder)
    reasons = left_out(folder)
    assert reasons["checkpoint"] == "no cell has fork_p50_us and seq_len"
    assert 'column "series"' in reasons["budget"]
    assert "memory" not in reasons


def test_a_run_of_one_experiment_is_drawn_without_the_columns_of_others(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,), later=True)
    with (folder / "cells.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == "budget"]
    written = [name for name in rows[0] if any(row[name] for row in rows) or name in STAGES]
    assert "step_p50_us" not in written and "verdict" not in written
    write_csv(folder / "cells.csv", written, [{name: row[name] for name in written} for row in rows])
    reported(folder)
    assert "budget" not in left_out(folder)
