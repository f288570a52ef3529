"""Every room keeps to its budget of lines (budget.csv). Lowering a budget is free; one above the room's first size needs a reason."""

import csv
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".cc", ".cu", ".py"}


def budgets(project=PROJECT):
    with (project / "tests/project/budget.csv").open() as file:
        return {row["room"]: row for row in csv.DictReader(file)}


def lines_by_room(project, rooms):
    """Lines of sources by the most specific room above each; None for those outside all rooms."""
    lines = dict.fromkeys(rooms, 0)
    for top in sorted({room.split("/")[0] for room in rooms}):
        for file in (project / top).rglob("*"):
            if file.suffix in SUFFIXES and file.is_file():
                above = [str(folder) for folder in file.relative_to(project).parents if str(folder) in rooms]
                room = above[0] if above else None
                lines[room] = lines.get(room, 0) + file.read_bytes().count(b"\n")
    return lines


def test_every_source_has_a_room():
    assert None not in lines_by_room(PROJECT, budgets())


@pytest.mark.parametrize("room", budgets())
def test_a_room_keeps_to_its_budget(room):
    lines, budget = lines_by_room(PROJECT, budgets())[room], int(budgets()[room]["budget"])
    assert lines <= budget, f"{room}: {lines} lines; remove {lines - budget}, or raise its budget with a reason in budget.csv"


def test_a_raised_budget_has_a_reason():
    assert [room for room, row in budgets().items() if int(row["budget"]) > int(row["lines"]) and not row["reason"]] == []


def test_the_most_specific_room_counts_a_source(tmp_path):
    for name in ("a/x.cc", "a/b/y.py", "a/b/notes.md", "c/z.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\ntwo\n")
    assert lines_by_room(tmp_path, {"a": {}, "a/b": {}}) == {"a": 2, "a/b": 2}
    assert lines_by_room(tmp_path, {"a/b": {}}) == {"a/b": 2, None: 2}
