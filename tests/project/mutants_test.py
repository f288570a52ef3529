"""The planted bugs of tests/mutants are in step with the code: a run of all of them takes too long to find that out."""

import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HOME / "tests" / "mutants"))
from list import MUTANTS  # noqa: E402
from matrix import planted  # noqa: E402
from table import Bug, read_table, rooms  # noqa: E402

BUGS = read_table()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.old.splitlines()[0].strip()}")
def test_a_planted_bug_has_its_place_and_its_tests(mutant):
    assert mutant.old != mutant.new
    assert (HOME / mutant.file).read_text().count(mutant.old) == 1
    for name in mutant.tests.split():
        assert list(HOME.glob(f"tests/**/{name}.cc")) + list(HOME.glob(f"tests/**/{name}.py")), name


def test_a_drawn_bug_has_its_place():
    """If a line has changed, take its row out, or draw anew: tests/mutants/draw.py."""
    for bug in BUGS:
        assert bug.planted(), bug
        assert bug.line.encode()[int(bug.at) :].startswith(bug.old.encode()) and bug.old != bug.new, bug
        assert bug.kind in ("comparison", "constant", "sign", "index", "skipped"), bug
    assert len({bug.name for bug in BUGS}) == len({(bug.file, bug.line) for bug in BUGS}) == len(BUGS)


def test_every_room_has_drawn_bugs():
    assert {bug.room for bug in BUGS} == {room for room, files in rooms().items() if len(files) > 1}


def test_a_test_stays_while_it_alone_notices_a_bug():
    stems = {path.stem.removesuffix("_test") for path in (HOME / "tests").rglob("*_test.*")}
    assert [bug for bug in BUGS if bug.noticed and stems.isdisjoint(name.split("/")[-1] for name in bug.noticed.split())] == []


def test_a_bug_is_planted_as_an_expression_that_is_switched():
    bugs = [Bug("0000abc", "", "", "sign", "x = a + b;", "4", "a + b", "a - b"), Bug("0000abd", "", "", "skipped", "f();", "0", "f();", "")]
    text = planted("a.cc", b"  x = a + b;\n  f();\n", bugs).decode().split("\n", 1)[1]
    assert text == "#line 1\n  x = (kv_mutant(0x0000abcu) ? (a - b) : (a + b));\n  { if (!kv_mutant(0x0000abdu)) f(); }\n"
    text = planted("a.py", b'"""A."""\nx = a + b\n', [bugs[0]._replace(file="a.py", line="x = a + b")]).decode().split("\n")
    assert text[0] == '"""A."""' and text[2] == "x = ((a - b) if kv_mutant(0x0000abc) else (a + b))"
