"""Reads the points of a chart out of its specification, and the rows of a results folder, by other means than plots/ has."""

import json
import math
import re
from collections import Counter
from statistics import median

from synthetic import in_words, rows_of

OWN = ("budget", "checkpoint", "prefill", "batch", "eval", "model", "replay", "serve", "speculate", "sensitivity", "task", "quality",
       "recall", "generate", "stream")  # fmt: skip
BASELINE = "contiguous/f32/full"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Files:
    """The tables of a results folder: fields as numbers where they are, None where nothing was measured. A row of a table beside cells.csv
    has the columns of its cell, too, those of the same name as `cell_NAME`."""

    def __init__(self, folder):
        self.folder = folder
        self.cells = [row for row in self.read("cells.csv") if row["status"] == "ok" and row["verdict"] != "aa_test"]
        self.by_key = {row["cell"]: row for row in self.cells}

    def read(self, name):
        path = self.folder / name
        return [{key: number(field) for key, field in row.items()} for row in rows_of(path)] if path.exists() else []

    def side(self, name):
        joined = ((self.by_key[row["cell"]], row) for row in self.read(name) if row["cell"] in self.by_key)
        return [cell | {f"cell_{key}": cell[key] for key in row if key in cell} | row for cell, row in joined]

    def of(self, *experiments):
        return [row for row in self.cells if row["experiment"] in experiments]

    def common(self):
        """Growth runs have charts of their own: they are here where nothing else was run."""
        rows = self.with_growth()
        return [row for row in rows if row["experiment"] != "growth"] or rows

    def with_growth(self):
        return [row for row in self.cells if row["experiment"] not in OWN]


def number(field):
    try:
        return float(field) if field else None
    except ValueError:
        return field


def each(rows, **kinds):
    """A row for each kind of each row that has its column: `each(rows, kind={"payload": "bytes_payload"})` adds `kind` and `value`, the
    sum of the columns that are named."""
    ((field, columns),) = kinds.items()
    for row in rows:
        for kind, names in columns.items():
            values = [row[name] for name in names.split()]
            if None not in values:
                yield row | {field: kind, "value": sum(values)}


def places(rows, panel, x, y, low=None, high=None):
    """The rows with `x` and `y`, expressions like `panel`; `front`, whether none to the left is as low; and `place`: there, or ambiguous
    because no interval of one as small lies wholly below."""
    rows = [row for row in rows if None not in (value(x, row), value(y, row))]
    at = [tuple(value(expression, row) for expression in (panel, x, y)) for row in rows]
    ends = [tuple(row[end] if end and row[end] is not None else own[2] for end in (low, high)) for row, own in zip(rows, at)]
    for row, own, (least, _) in zip(rows, at, ends):
        beside = [(other, end) for other, end in zip(at, ends) if other[0] == own[0]]
        front = not any(other[1:] != own[1:] and other[1] <= own[1] and other[2] <= own[2] for other, _ in beside)
        maybe = not any(other[1] <= own[1] and most < least for other, (_, most) in beside)
        yield row | {"x": own[1], "y": own[2], "front": front, "place": "on the front" if front else "ambiguous" if maybe and low else None}


HELPERS = {"floor": lambda error: max(error, 1e-9), "words": in_words, "max": max, "min": min, "round": round, "str": str, "exp": math.exp,
           "median": median}  # fmt: skip


def value(expression, row):
    """An expression over a row's columns; None where it needs one that was not measured."""
    try:
        return eval(expression, HELPERS, row)
    except TypeError:
        return None


def points(rows):
    """How often each tuple is there, numbers to nine digits; those that lack a value are not drawn."""
    digits = lambda number: float(f"{number:.9g}") if isinstance(number, (int, float)) else number
    return Counter(tuple(map(digits, row)) for row in rows if row is not None and None not in row)


def layers(spec):
    inside = spec.get("spec", spec)
    for layer in inside.get("layer", [inside]):
        steps = [*inside.get("transform", []), *layer.get("transform", [])]
        yield layer["mark"]["type"] if isinstance(layer["mark"], dict) else layer["mark"], layer["encoding"], {step["filter"] for step in steps}


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
    """The points of the layers of this mark that have all these channels, at each length of the menu, if there is one. Channels that are
    none: `data`, all rows, by the fields of these names; `panel`."""
    found, rows = [], spec["data"]["values"]
    if mark == "data":
        return points([row.get(spec["facet"]["field"] if field == "panel" else field) for field in channels] for row in rows)
    for kind, encoding, filters in layers(spec):
        fields = [spec["facet"]["field"] if channel == "panel" else encoding.get(channel, {}).get("field") for channel in channels]
        if kind == mark and None not in fields:
            found += [[row.get(field) for field in fields] for row in rows if is_shown(row, filters, menu(spec))]
    assert found, f"no layer of {mark} with {channels}"
    return points(found)


def title(spec, channel):
    """The title of the axis: of the first layer that has one."""
    axes = [(encoding[channel], encoding[channel].get("axis") or {}) for _, encoding, _ in layers(spec) if channel in encoding]
    return next(part["title"] for axis in axes for part in axis if part.get("title"))


def message(spec):
    """The title in one line, at the greatest length of a chart with a menu of lengths."""
    text = spec["title"]["text"]
    if isinstance(text, dict):
        at_length = json.loads(re.fullmatch(r"\((.*)\)\[length\]", text["expr"])[1])
        text = at_length[max(at_length, key=int)]
    return text if isinstance(text, str) else " ".join(text)
