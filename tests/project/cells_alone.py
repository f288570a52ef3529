"""cells.csv and columns.json read alone, and the rules by which sentences speak of them, apart from the code that writes sentences."""

from __future__ import annotations

import csv
import json
import math
import re
from functools import lru_cache
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
FOLDERS = [path.parent for path in sorted(HOME.glob("results/**/cells.csv")) if (path.parent / "columns.json").exists()]
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(HOME / "results")))
UNITS = {"bytes": 1, "B": 1, **{f"{p}iB": 1024 ** (at + 1) for at, p in enumerate("KMGT")}}
NAME, NUMBER = r"`([^`]+)`", r"([-+\d.,e]+)"
LIMITS = {"err_rel_l2": 0.2, "kl_mean": 0.1, "loss_change": 0.1}
SAID = {"err_rel_l2": "an error of at most 0.2", "kl_mean": "a KL divergence of at most 0.1 nats", "loss_change": "a loss of at most 0.1 nats more", "common_tokens_p50": "the same text"}


class Cells:
    def __init__(self, folder: Path):
        with (folder / "cells.csv").open(encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))
        columns = json.loads((folder / "columns.json").read_text())
        self.headings = {entry["name"]: entry["heading"] for entry in columns if entry.get("heading")}
        arms = {entry["name"]: entry.get("title") or "{}" for entry in columns if entry.get("arm")}
        axes = [entry["name"] for entry in columns if entry.get("axis")]
        self.axes = [name for name in ("host", *axes) if name in self.rows[0] and name not in arms]
        self.labels = {row["variant"]: row.get("label") or row["variant"] for row in self.rows}
        self.points: dict[tuple, list[dict]] = {}
        for row in self.rows:
            self.points.setdefault(tuple(row[name] for name in self.axes), []).append(row)
        for point in self.points.values():
            for row in point:
                row["judged"] = judged(row, point)
                arm = " ".join(title.format(row[name]).replace("_", " ") for name, title in arms.items() if row.get(name))
                row["called"] = ", ".join(filter(None, (self.labels[row["variant"]], arm)))

    def longest(self, experiment: str) -> list[list[dict]]:
        points = [rows for rows in self.points.values() if rows[0]["experiment"] == experiment]
        most = max(number(rows[0], "seq_len") for rows in points)
        return [rows for rows in points if number(rows[0], "seq_len") == most]


@lru_cache
def read(folder: Path) -> Cells:
    return Cells(folder)


def number(row: dict, column: str) -> float | None:
    return float(row[column]) if row.get(column) else None


def is_aa(row: dict) -> bool:
    return row.get("verdict") in ("aa_test", "null")


def timed(row: dict) -> bool:
    return bool(row.get("step_p50_us") or row.get("prefill_p50_us"))


def apart(row: dict, ratio: str = "ratio") -> bool:
    low, high = number(row, f"{ratio}_ci_low"), number(row, f"{ratio}_ci_high")
    return None not in (low, high) and (low > 1 or high < 1)


def baseline_of(row: dict, point: list[dict]) -> list[dict]:
    """In prefill `versus` is an arm, of the row's own variant."""
    own = [b for b in point if b["verdict"] == "baseline"]
    return [b for b in own if row["versus"] in (b["variant"], b.get("arm") if b["variant"] == row["variant"] else None)]


def judged(row: dict, point: list[dict]) -> str:
    """The verdict that the times allow: none beside a baseline that is noisy or differs from itself."""
    if not row.get("ratio_p50") or is_aa(row) or row["verdict"] == "baseline":
        return row.get("verdict") or ""
    tests = [other for other in point if is_aa(other) and other["versus"] == row["versus"]]
    if any(b.get("noise") for b in baseline_of(row, point)) or any(map(apart, tests)):
        return "unreliable"
    return row["verdict"] if not apart(row) else "faster" if number(row, "ratio_ci_high") < 1 else "slower"


def pace(row: dict, ratio: str = "") -> tuple | None:
    ratio = ratio or ("append_total_ratio" if row.get("append_total_ratio_p50") else "ratio")
    if row.get("verdict") == "baseline" and timed(row):
        return 1.0, 1.0, 1.0
    return with_ends(row, f"{ratio}_p50", f"{ratio}_ci_low", f"{ratio}_ci_high")


def with_ends(row: dict, column: str, low: str = "", high: str = "") -> tuple | None:
    value = number(row, column)
    ends = number(row, low), number(row, high)
    return None if value is None else (value, value, value) if None in ends else (value, *ends)


def row_name(row: dict) -> str:
    tags = {"keeps all": row.get("keeps_all") == "1", "oracle": row.get("oracle"), "untested": row.get("verdict") == "untested", "A/A test": is_aa(row)}
    return row["called"] + "".join(f"  [{tag}]" for tag, has in tags.items() if has)


def shows(shown: str, name: str) -> bool:
    """Whether a table's text is this name, whose middle it may leave out."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), name) is not None


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def ranged(reach: tuple, pattern: str) -> str:
    return pattern % reach[0] + (f" ({pattern % reach[1]}–{pattern % reach[2]})" if reach[1] != reach[2] or pattern == "%.2g" else "")


def best_of(rows: list[dict], measure) -> tuple[dict | None, list[dict]]:
    """The row with the least, and those that reach it; without intervals those that are equal to three digits in units of bytes, or
    errors to two."""
    known = [row for row in rows if measure(row)]
    best = min(known, key=lambda row: measure(row)[0], default=None)
    return best, [row for row in known if row is not best and meets(measure(best), measure(row))]


def meets(best: tuple, other: tuple) -> bool:
    if best[1] == best[2] and other[1] == other[2] and 1.0 not in (best[0], other[0]):
        return as_printed(best[0]) == as_printed(other[0])
    return other[1] <= best[2]


def as_printed(value: float) -> str:
    if abs(value) < 10:
        return f"{value:.1e}"
    power = int(math.log(value, 1024))
    return f"{value:.0f}" if power == 0 else f"{value / 1024**power:.3g} {power}"


def lossless(row: dict) -> bool:
    return (number(row, "err_codec_rel_l2"), number(row, "err_retention_rel_l2")) == (0, 0) or number(row, "kl_mean") == 0


def evicts(row: dict) -> bool:
    kept, length, lost = number(row, "kept_tokens"), number(row, "seq_len"), number(row, "err_retention_rel_l2")
    return row["keeps_all"] == "0" if row.get("keeps_all") else lost > 0 if lost is not None else None not in (kept, length) and kept < length


def keeps(row: dict) -> bool:
    if row["experiment"] == "generate":
        return row.get("common_tokens_p50") in ("", None) or number(row, "common_tokens_p50") == number(row, "generated_tokens")
    column = next((column for column in LIMITS if row.get(column)), None)
    return column is None or number(row, column) <= LIMITS[column]


def nameable(rows: list[dict]) -> list[dict]:
    """Those that an answer may name: measured, put to the test, and no oracle."""
    return [row for row in rows if row["status"] == "ok" and not is_aa(row) and not row.get("oracle") and row.get("verdict") != "untested"]


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def told(row: dict) -> str:
    """The word beside a ratio: of all appends where the experiment sums them."""
    if row["judged"] in ("faster", "slower", "ambiguous", "unreliable") and row["status"] == "ok" and row.get("ratio_p50"):
        if row["judged"] == "unreliable" or not row.get("append_total_ratio_p50"):
            return row["judged"]
        return "ambiguous" if not apart(row, "append_total_ratio") else "faster" if number(row, "append_total_ratio_p50") < 1 else "slower"
    return ""


def noisy_of(cells: Cells) -> tuple[list[dict], list[dict]]:
    all_timed = [row for row in cells.rows if timed(row)]
    return [row for row in all_timed if row.get("noise")], all_timed


def rounds(text: str, scale: float, true: float) -> bool:
    """Whether the text, in units of `scale`, is the true value to its last digit."""
    mantissa, _, exponent = text.replace(",", "").partition("e")
    return abs(float(mantissa) - true / scale / 10 ** int(exponent or 0)) <= 0.5001 * 10 ** -len(mantissa.partition(".")[2])
