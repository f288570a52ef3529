"""What a stranger's file may state although nothing reads it: configs/unread_keys.json, with a reason for each."""
from __future__ import annotations

import json
import os
from collections.abc import Container
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from refusal import Refusal

HOME = Path(os.environ.get("KVLAB_HOME") or Path(__file__).resolve().parents[2])


@lru_cache(maxsize=None)
def _patterns(kind: str) -> list[str]:
    table = json.loads((HOME / "configs" / "unread_keys.json").read_text(encoding="utf-8"))
    return [pattern for names in table[kind].values() for pattern in names.split()]


def changes_nothing(kind: str, name: str) -> bool:
    """True if a key or a tensor of this name changes no logits. `kind` is one of the table's."""
    return any(fnmatchcase(name, pattern) for pattern in _patterns(kind))


def says_no(value: Any) -> bool:
    """True for a value that says that there is no such thing."""
    return value is None or value is False or (isinstance(value, (int, list, dict, str)) and not value)


def refuse_unread(kind: str, path: Path, stated: dict[str, Any], asked: Container[str], prefix: str = "") -> None:
    """Refuses what a file states and nobody asked for, unless it changes nothing. Names are those behind `prefix`."""
    for key, value in stated.items():
        if key not in asked and not says_no(value) and not changes_nothing(kind, key[len(prefix) :]):
            raise Refusal(f"{path}: '{key}' is {str(value)[:60]}, which kvlab does not read; take it out if it changes nothing")
