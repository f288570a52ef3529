"""matrix.csv: drawn bugs, and the tests that notice them. A bug is planted into a text as an expression that the environment switches."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[2]
TABLE = HOME / "tests" / "mutants" / "matrix.csv"


class Bug(NamedTuple):
    name: str  # a hash: KVLAB_MUTANT
    room: str
    file: str
    kind: str
    line: str  # occurs once in the file
    at: str  # bytes before the place within the line
    old: str
    new: str
    noticed: str = ""  # names of test files
    passed: str = ""  # they reach it and pass with it
    not_run: str = ""  # they reach it, and were left out or ended early
    commit: str = ""  # of the last run; empty before the first
    note: str = ""  # why it changes nothing, or why there is no test

    def planted(self, home: Path = HOME) -> bool:
        """True if its line is there once."""
        path = home / self.file
        return path.is_file() and [line.strip() for line in path.read_text().split("\n")].count(self.line) == 1

    def state(self) -> str:
        return "never run" if not self.commit else "noticed" if self.noticed else "unnoticed" if self.passed else "not run" if self.not_run else "unreached"

    def text(self) -> str:
        """The place with the bug and without."""
        if self.file.endswith(".py"):
            asked = f"kv_mutant(0x{self.name})"
            return f"(({self.new}) if {asked} else ({self.old}))" if self.new else f"if not {asked}: {self.old}"
        asked = f"kv_mutant(0x{self.name}u)"
        if not self.new:
            return f"{{ if (!{asked}) {self.old} }}"
        return f"({asked} ? ({self.new}) : {'static_cast<bool>' if self.new == 'false' else ''}({self.old}))"


def read_table() -> list[Bug]:
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return [Bug(**row) for row in csv.DictReader(file)]


def write_table(bugs: list[Bug]) -> None:
    """Whole or not at all: a run may be killed."""
    new = TABLE.with_suffix(".new")
    with new.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(Bug._fields)
        out.writerows(sorted(bugs, key=lambda bug: (bug.room, bug.file, bug.line)))
    os.replace(new, TABLE)


def rooms() -> dict[str, list[Path]]:
    """Sources of each room of product code, by the most specific room above them."""
    with (HOME / "tests/project/budget.csv").open() as file:
        names = [row["room"] for row in csv.DictReader(file) if row["room"].split("/")[0] != "tests"]
    found = {name: [] for name in names}
    for top in sorted({name.split("/")[0] for name in names}):
        for path in sorted((HOME / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".py") and path.is_file():
                above = [str(folder) for folder in path.relative_to(HOME).parents if str(folder) in found]
                found[above[0]].append(path)
    return found
