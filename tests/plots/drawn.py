"""Reads the points of a chart out of its specification, and the rows of a results folder, by other means than plots/ has."""

from __future__ import annotations

import csv
import re
from collections import Counter

MODELS = ("quality", "recall", "generate", "stream")
OWN = ("budget", "checkpoint", "prefill", "batch", "eval", "model", "replay", "sensitivity", "task", *MODELS)
BASELINE = "contiguous/f32/full"


class Files:
    """The tables of a results folder: fields as numbers where they are, None where nothing was measured."""

    def __init__(self, folder):
        self.cells = [row for row in rows_of(folder / "cells.csv") if row["status"] == "ok" and row["verdict"] != "aa_test"]
        by_key = {row["cell"]: row for row in self.cells}
        joined = lambda name: [(by_key[row["cell"]], row) for row in rows_of(folder / name) if row["cell"] in by_key]
        self.growth, self.positions, self.heads = joined("growth.csv"), joined("positions.csv"), joined("heads.csv")
        self.moments, self.hits = joined("replay.csv"), joined("hits.csv")

    def of(self, *experiments):
        return [row for row in self.cells if row["experiment"] in experiments]

    def common(self):
        """Growth runs have charts of their own: they are here where nothing else was run."""
        rows = self.with_growth()
        return [row for row in rows if row["experiment"] != "growth"] or rows

    def with_growth(self):
        return [row for row in self.cells if row["experiment"] not in OWN]


def rows_of(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{name: number(field) for name, field in row.items()} for row in csv.DictReader(file)]


def number(field):
    try:
        return float(field) if field else None
    except ValueError:
        return field


def points(rows):
    """How often each tuple is there, numbers to nine digits; those that lack a value are not drawn."""
    digits = lambda value: float(f"{value:.9g}") if isinstance(value, (int, float)) else value
    return Counter(tuple(map(digits, row)) for row in rows if None not in row)


def layers(spec):
    inside = spec.get("spec", spec)
    for layer in inside.get("layer", [inside]):
        mark = layer["mark"]
        steps = [*inside.get("transform", []), *layer.get("transform", [])]
        filters = {step["filter"] for step in steps}
        yield mark["type"] if isinstance(mark, dict) else mark, layer["encoding"], filters


def is_shown(row, filters, lengths):
    for text in filters:
        if text == "datum.seq_len == length":
            shown = row["seq_len"] in lengths
        elif text == "datum.noise != ''":
            shown = row["noise"] != ""
        elif text == "datum.reference && datum.variant == beside":
            shown = row["reference"] and row["variant"] == BASELINE
        else:
            negated, field = re.fullmatch(r"(!?)datum\.(\w+)", text).groups()
            shown = bool(row[field]) != bool(negated)
        if not shown:
            return False
    return True


def menu(spec):
    """The lengths that the chart's menu offers; none where it has no menu."""
    for parameter in spec.get("params", []):
        if parameter["name"] == "length":
            options = parameter.get("bind", {}).get("options", [parameter["value"]])
            assert parameter["value"] == max(options)
            return options
    return []


def drawn(spec, mark, *channels):
    """The points of the layers of this mark that have all these channels; at each length of the menu, if there is one."""
    found = []
    for kind, encoding, filters in layers(spec):
        fields = [encoding.get(channel, {}).get("field") for channel in channels]
        if kind == mark and None not in fields:
            found += [[row.get(field) for field in fields] for row in spec["data"]["values"]
                      if is_shown(row, filters, menu(spec))]  # fmt: skip
    assert found, f"no layer of {mark} with {channels}"
    return points(found)


def title(spec, channel):
    """The title of the axis: of the first layer that has one."""
    axes = [encoding[channel].get("axis") or {} for _, encoding, _ in layers(spec) if channel in encoding]
    return next(axis["title"] for axis in axes if axis.get("title"))


def held(row, *more):
    return sum(row[name] or 0 for name in ("bytes_payload", "bytes_metadata", "bytes_slack", *more))


def front(rows):
    """The points (panel, x, y, …) of the panel that none to the left is as low as."""
    return [row for row in rows if not any(
        other[0] == row[0] and other[1:3] != row[1:3] and other[1] <= row[1] and other[2] <= row[2] for other in rows)]  # fmt: skip


def places(rows):
    """The points (panel, x, y, low, high) on the front, or ambiguous because no interval of one as small lies wholly below."""
    best = front(rows)
    maybe = [row for row in rows if not any(other[0] == row[0] and other[1] <= row[1] and other[4] < row[3] for other in rows)]
    return [("on the front", row) for row in best] + [("ambiguous", row) for row in maybe if row not in best]


def heat_cells(files):
    """(cell, whether it is cold): hot ones only where the read bandwidth says that the rows are cache-resident."""
    for row in files.with_growth():
        if row["cold_ceiling_share"] is not None:
            yield row, True
            if row["ceiling_gbps"] and row["ceiling_gbps"] >= 1.3 * row["cold_ceiling_gbps"]:
                yield row, False


def place(row, cold):
    tokens = row["seq_len"]
    length = f"{tokens / 1024:.0f}K" if tokens % 1024 == 0 else f"{tokens:.0f}"
    shape = f"{row['q_heads']:.0f}/{row['kv_heads']:.0f} heads of {row['head_dim']:.0f}"
    return row["variant"], f"{length} · {row['threads']:.0f}t", f"{shape} · {'cold' if cold else 'hot'}"


def heat_table(spec):
    panel = spec["facet"]["field"]
    return points((row["variant"], row["column"], row[panel], row["label"]) for row in spec["data"]["values"])


def losses(row):
    return row["loss"] - 1.96 * row["loss_se"], row["loss"] + 1.96 * row["loss_se"]
