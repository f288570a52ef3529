"""Files, functions and pages that can be read in one piece, and rooms that keep to their budget of lines (budget.csv): lowering a
budget is free; one above the room's first size needs a reason."""

import ast
import csv
import shutil
import subprocess

import pytest
from sources import PROJECT, sources

SOURCE_LINES = 400
FUNCTION_LINES = 60
WORDS = {
    "README.md": 650, "CONTRIBUTING.md": 900, "harness/README.md": 900, "kernels/README.md": 800, "variants/README.md": 2600, "results/README.md": 1500,
    "configs/README.md": 2500, "configs/claims/README.md": 1500, "plots/README.md": 700,
}  # fmt: skip


def long_sources(project):
    for file in sources(project) + sources(project, {".py"}):
        if len((project / file).read_text().splitlines()) > SOURCE_LINES:
            yield f"{file} has more than {SOURCE_LINES} lines"


def long_functions(project):
    """Python's functions; clang-tidy measures those of C++ (.clang-tidy)."""
    for file in sources(project, {".py"}):
        for node in ast.walk(ast.parse((project / file).read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= FUNCTION_LINES:
                yield f"{file}: {node.name} has more than {FUNCTION_LINES} lines"


def long_pages(project):
    for page, words in WORDS.items():
        if (project / page).exists() and len((project / page).read_text().split()) > words:
            yield f"{page} has more than {words} words"


def budgets(project):
    with (project / "tests/project/budget.csv").open() as file:
        return {row["room"]: row for row in csv.DictReader(file)}


def lines_by_room(project, rooms):
    """Lines of sources by the most specific room above each; None for those outside all rooms."""
    lines = dict.fromkeys(rooms, 0)
    for file in sources(project, {".h", ".cc", ".cu", ".py"}, sorted({room.split("/")[0] for room in rooms})):
        room = next((str(folder) for folder in file.parents if str(folder) in rooms), None)
        lines[room] = lines.get(room, 0) + (project / file).read_bytes().count(b"\n")
    return lines


def rooms_beyond_their_budget(project):
    rooms = budgets(project)
    for room, lines in lines_by_room(project, rooms).items():
        if room is None:
            yield f"{lines} lines are in no room"
        elif lines > (budget := int(rooms[room]["budget"])):
            yield f"{room}: {lines} lines; remove {lines - budget}, or raise its budget with a reason in budget.csv"
    yield from (f"{room}: a raised budget needs a reason" for room, row in rooms.items() if int(row["budget"]) > int(row["lines"]) and not row["reason"])


RULES = [long_sources, long_functions, long_pages, rooms_beyond_their_budget]


@pytest.mark.parametrize("rule", RULES)
def test_sources_are_short(rule):
    assert list(rule(PROJECT)) == []


@pytest.mark.skipif(not shutil.which("clang-tidy"), reason="no clang-tidy here")
@pytest.mark.parametrize("lines, found", [(61, 0), (62, 1)])
def test_a_long_function_is_found(tmp_path, lines, found):
    (tmp_path / "long.cc").write_text("int f(int x) {\n" + "  ++x;\n" * (lines - 3) + "  return x;\n}\n")
    done = subprocess.run(["clang-tidy", "--quiet", f"--config-file={PROJECT / '.clang-tidy'}", tmp_path / "long.cc", "--"], capture_output=True, text=True)
    assert (done.returncode, "function 'f' exceeds" in done.stdout) == (found, bool(found)), done.stdout + done.stderr


def test_a_long_python_function_is_found(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots/a.py").write_text("def f():\n" + "    x = 1\n" * 60)
    assert list(long_functions(tmp_path)) == ["plots/a.py: f has more than 60 lines"]


def test_what_is_too_long_is_found(tmp_path):
    (tmp_path / "variants").mkdir()
    (tmp_path / "tests/project").mkdir(parents=True)
    (tmp_path / "tests/project/budget.csv").write_text("room,lines,budget,reason\nvariants,300,400,more of them\ntests,1,1,\n")
    (tmp_path / "variants/a.h").write_text("//\n" * 400)
    (tmp_path / "README.md").write_text("word " * WORDS["README.md"])
    assert [found for rule in RULES for found in rule(tmp_path)] == []
    (tmp_path / "tests/project/budget.csv").write_text("room,lines,budget,reason\nvariants,300,400,\ntests/project,1,1,\n")
    (tmp_path / "variants/a.h").write_text("//\n" * 401)
    (tmp_path / "README.md").write_text("word " * (WORDS["README.md"] + 1))
    (tmp_path / "tests/a.py").write_text("\n")
    assert [found for rule in RULES for found in rule(tmp_path)] == [
        "variants/a.h has more than 400 lines",
        "README.md has more than 650 words",
        "variants: 401 lines; remove 1, or raise its budget with a reason in budget.csv",
        "1 lines are in no room",
        "variants: a raised budget needs a reason",
    ]


def test_the_most_specific_room_counts_a_source(tmp_path):
    for name in ("a/x.cc", "a/b/y.py", "a/b/notes.md", "c/z.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one\ntwo\n")
    assert lines_by_room(tmp_path, {"a": {}, "a/b": {}}) == {"a": 2, "a/b": 2}
    assert lines_by_room(tmp_path, {"a/b": {}}) == {"a/b": 2, None: 2}
