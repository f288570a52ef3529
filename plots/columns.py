"""The columns of a results file: of cells.csv as columns.json describes them. Any other column is a number unless it is
named here or its first value is a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TEXT = set("cell variant host kind prompt text full_text".split())
TYPES = ("text", "integer", "number")


class BadResults(Exception):
    """The user's results cannot be read; the message is one line: what is wrong, and where."""


@dataclass(frozen=True)
class Column:
    name: str
    type: str = "number"  # text, integer or number
    unit: str = ""
    meaning: str = ""
    aliases: tuple[str, ...] = ()  # names that it had in earlier versions
    experiments: tuple[str, ...] = ()  # that write it
    is_axis: bool = False  # a sweep can vary it
    title: str = ""  # of an axis: how a panel's title says a value, as 'batch {}'; '' where values lie within a panel
    key: str = ""  # of an axis: its key in a config

    @property
    def is_text(self) -> bool:
        return self.type == "text"


def read_columns(path: Path) -> dict[str, Column]:
    """The columns of cells.csv by name and by alias; none where there is no such file. Throws BadResults."""
    if not path.exists():
        return {}
    entries = read_json(path)
    try:
        columns = [
            Column(e["name"], e["type"], *(e.get(text) or "" for text in ("unit", "meaning")),
                   *(tuple(e.get(names) or ()) for names in ("aliases", "experiments")), e.get("axis") is True,
                   *(e.get(text) or "" for text in ("title", "key")))
            for e in entries
        ]
    except (KeyError, TypeError, AttributeError):
        columns = [Column("", type="")]
    for column in columns:
        texts = (column.name, column.type, column.unit, column.meaning, column.title, column.key, *column.aliases, *column.experiments)
        if not all(isinstance(text, str) for text in texts) or column.type not in TYPES:
            raise BadResults(f"{path}: needs an array of objects with name and type")
    return {alias: column for column in columns for alias in column.aliases} | {c.name: c for c in columns}


def read_json(path: Path):
    """Throws BadResults."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadResults(f"{path}:{error.lineno}: not valid JSON ({error.msg})") from None
    except RecursionError:
        raise BadResults(f"{path}: its brackets are nested too deep") from None
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a number of thousands of digits
        raise BadResults(f"{path}: cannot be read ({error})") from None


def guessed(name: str, values: Iterable[str]) -> Column:
    """A column that columns.json does not have, from its name and its first value."""
    first = next(filter(None, values), "0")
    return Column(name, "text" if name in TEXT or not is_number(first) else "number")


def is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
