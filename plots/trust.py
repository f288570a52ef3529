"""How far the times of runs can be trusted: their A/A tests and their noise."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data import Run

CHANCE = 0.05  # that an A/A test leaves out 1 though nothing differs
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Trust:
    tests: int  # A/A tests
    apart: int  # those whose interval leaves out 1
    timed: int  # cells
    noisy: int  # of these

    @property
    def aa_failed(self) -> bool:
        """More intervals leave out 1 than chance explains, which lets 5 % do so."""
        expected = (comb(self.tests, k) * CHANCE**k * (1 - CHANCE) ** (self.tests - k) for k in range(self.apart, self.tests + 1))
        return self.apart > 0 and sum(expected) < CHANCE

    @property
    def mostly_noisy(self) -> bool:
        return 2 * self.noisy > self.timed

    @property
    def advice(self) -> str:
        return (f"{self.noisy} of {self.timed} timed cells are noisy, so these times say little. Close other programs, leave cores free "
                "(--threads), take more repetitions (--set measure.repetitions=21), or measure at another time.")  # fmt: skip


def trust_of(runs: Iterable[Run]) -> Trust:
    points = [point for run in runs for point in run.answers["points"] if run.host in ("", point["host"])]
    tests = [test["differs"] for point in points for test in point["tests"]]
    return Trust(len(tests), sum(tests), *(sum(point[count] for point in points) for count in ("timed", "noisy")))


@dataclass(frozen=True)
class Cause:
    """Cells with one status for one reason, whatever its numbers."""

    status: str  # or "noisy"
    worst: str  # the reason with the largest number
    cell: str  # which has it
    count: int
    variants: list[str]


def causes(rows: Iterable[Mapping], column: str) -> list[Cause]:
    """The cause of most cells first; a cell's disturbances are several."""
    groups: dict[tuple[str, str], list[tuple[float, str, Mapping]]] = defaultdict(list)
    for row in rows:
        reason = row[column] or "no reason recorded"
        status = "noisy" if column == "noise" else (row["status"] or "no status").replace("_", " ")
        for said in reason.split("; ") if column == "noise" else [reason]:
            worst = max(map(float, NUMBER.findall(said)), default=0.0)
            groups[status, NUMBER.sub("…", said)].append((worst, said, row))
    found = []
    for (status, _), own in groups.items():
        _, said, row = max(own, key=lambda cell: cell[0])
        found.append(Cause(status, said, row["cell"] or "", len(own), list(dict.fromkeys(row["variant"] for _, _, row in own))))
    return sorted(found, key=lambda cause: -cause.count)
