"""How far the times of a run can be trusted: its A/A tests, its noise, and the verdicts that these forbid."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import comb

import polars as pl
from known import AXES
from prepare import is_aa_test, with_absent
from ranking import UNRELIABLE

CHANCE = 0.05  # that an A/A test leaves out 1 though nothing differs
RATIO = ["ratio_p50", "ratio_ci_low", "ratio_ci_high"]
TIMES = ["step_p50_us", "prefill_p50_us"]
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def leaves_out_one(row: Mapping) -> bool:
    return None not in (row["ratio_ci_low"], row["ratio_ci_high"]) and not row["ratio_ci_low"] <= 1 <= row["ratio_ci_high"]


def with_trusted_verdicts(cells: pl.DataFrame) -> pl.DataFrame:
    """No verdict on times that are compared with a noisy baseline, or with one that an A/A test finds to differ from itself. The rule
    of harness/measure/noise.h, for folders of earlier versions."""
    rows = with_absent(cells, RATIO, ["arm", "host"]).with_columns(aa_test=is_aa_test()).rows(named=True)
    axes = [name for name in (*AXES, "host") if name in cells.columns and not (name in AXES and AXES[name].is_arm)]
    at = [tuple(row[name] for name in axes) for row in rows]
    doubted = set()  # (place, name in `versus`, variant; None: of any)
    for place, row in zip(at, rows):
        if row["aa_test"] and leaves_out_one(row):
            doubted.add((place, row["versus"], None))
        if row["verdict"] == "baseline" and row["noise"]:
            doubted |= {(place, row["variant"], None), (place, row["arm"], row["variant"])}
    is_doubted = lambda place, row: not doubted.isdisjoint({(place, row["versus"], None), (place, row["versus"], row["variant"])})  # noqa: E731
    forbidden = [row["ratio_p50"] is not None and not row["aa_test"] and row["verdict"] != "baseline" and is_doubted(place, row) for place, row in zip(at, rows)]
    return cells.with_columns(verdict=pl.when(pl.Series(forbidden, dtype=pl.Boolean)).then(pl.lit(UNRELIABLE)).otherwise("verdict"))


@dataclass(frozen=True)
class Trust:
    tests: int  # A/A tests
    apart: int  # those whose interval leaves out 1
    timed: int  # cells
    noisy: int  # of these

    @property
    def aa_failed(self) -> bool:
        """More leave out 1 than chance explains, of intervals that do so in 5 % of all tests."""
        expected = (comb(self.tests, k) * CHANCE**k * (1 - CHANCE) ** (self.tests - k) for k in range(self.apart, self.tests + 1))
        return self.apart > 0 and sum(expected) < CHANCE

    @property
    def mostly_noisy(self) -> bool:
        return 2 * self.noisy > self.timed

    @property
    def advice(self) -> str:
        return (f"{self.noisy} of {self.timed} timed cells are noisy, so these times say little. Close other programs, leave cores free "
                "(--threads), take more repetitions (--set measure.repetitions=21), or measure at another time.")  # fmt: skip


def trust_of(cells: pl.DataFrame) -> Trust:
    cells = with_absent(cells, [*RATIO, *TIMES], ["noise", "verdict"])
    tests = cells.filter(is_aa_test(), *(pl.col(end).is_not_null() for end in RATIO)).rows(named=True)
    timed = cells.filter(pl.any_horizontal(pl.col(TIMES).is_not_null()))
    return Trust(len(tests), sum(map(leaves_out_one, tests)), timed.height, timed["noise"].is_not_null().sum())


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
