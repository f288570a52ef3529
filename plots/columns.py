"""The columns of a results file: of cells.csv as columns.json describes them. Any other column is a number unless it is
named here or its first value is a word.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TEXT = set("cell variant host kind prompt text full_text".split())
ARMS = ("arm", "chunk_tokens")  # in folders of earlier versions, which do not say so
TYPES = ("text", "integer", "number")
# Control characters and halves of characters: no SVG may hold them, and a terminal obeys some.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


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
    key: str = ""  # of an axis: its key in a config
    title: str = ""  # of an axis: how a panel's title says a value, as 'batch {}'; '' where values lie within a panel
    is_arm: bool = False  # of an axis: its value is a part of a row's name, as the title says it
    heading: str = ""  # its title in every table and chart

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
                   *(e.get(text) or "" for text in ("key", "title")), e.get("arm") is True or e["name"] in ARMS, e.get("heading") or "")
            for e in entries
        ]
    except (KeyError, TypeError, AttributeError):
        columns = [Column("", type="")]
    for column in columns:
        texts = (column.name, column.type, column.unit, column.meaning, column.title, column.key, column.heading, *column.aliases, *column.experiments)
        if not all(isinstance(text, str) for text in texts) or column.type not in TYPES:
            raise BadResults(f"{path}: needs an array of objects with name and type")
    return {alias: column for column in columns for alias in column.aliases} | {c.name: c for c in columns}


def printable(value):
    """A text, or every text of a JSON value, with U+FFFD for what is unprintable."""
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [printable(inner) for inner in value]
    return UNPRINTABLE.sub("\ufffd", value) if isinstance(value, str) else value


def read_json(path: Path):
    """Throws BadResults."""
    try:
        return printable(json.loads(path.read_text(encoding="utf-8")))
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
