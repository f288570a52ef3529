"""A report of checks, and the bytes that can be reached from an object."""

from __future__ import annotations

import functools
import inspect
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass
class Check:
    name: str
    status: str  # pass, fail or skipped
    detail: str

    def __str__(self) -> str:
        return f"{self.status:8}{self.name:20}{self.detail}"


@dataclass
class Report:
    """One line a check. `ok`: none failed, and at least one passed."""

    subject: str
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failed and any(c.status == "pass" for c in self.checks)

    @property
    def failed(self) -> list[str]:
        return [c.name for c in self.checks if c.status == "fail"]

    def add(self, name: str, holds: bool | None, detail: str) -> None:
        """`holds`: none if it was not checked."""
        self.checks.append(Check(name, "skipped" if holds is None else "pass" if holds else "fail", detail))

    def json(self) -> str:
        return json.dumps({**asdict(self), "ok": self.ok}, indent=1)

    def __str__(self) -> str:
        return "\n".join([self.subject, *map(str, self.checks)])


def array(x: Any) -> np.ndarray:
    """A NumPy array of a tensor of any library; types that NumPy lacks are widened to float32."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = x.float().cpu() if x.is_floating_point() else x.cpu()
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray) else np.asarray(x)


def reachable_bytes(thing: Any) -> int:
    """Bytes of all arrays that can be reached from an object, each storage once: attributes, slots, containers, closures."""
    seen, storages, waiting = set(), {}, [thing]
    while waiting:
        x = waiting.pop()
        if id(x) in seen or isinstance(x, (type, str, int, float, bool, type(None), type(inspect))):
            continue
        seen.add(id(x))
        if isinstance(x, np.ndarray):
            while isinstance(x.base, np.ndarray):
                x = x.base
            storages[x.__array_interface__["data"][0]] = x.nbytes
            waiting += x.ravel().tolist() if x.dtype == object else []
        elif isinstance(x, (bytes, bytearray, memoryview)):
            storages[id(x)] = len(x)
        elif isinstance(x, dict):
            waiting += [*x.keys(), *x.values()]
        elif isinstance(x, (list, tuple, set, frozenset)) or type(x).__name__ == "deque":
            waiting += x
        else:
            inner = [getattr(x, name) for c in type(x).__mro__ for name in getattr(c, "__slots__", ()) if hasattr(x, name)]
            inner += getattr(x, "__dict__", {}).values()
            inner += [cell.cell_contents for cell in getattr(x, "__closure__", None) or ()]
            inner += [x.__self__, x.__func__] if inspect.ismethod(x) else []
            inner += [x.func, x.args, x.keywords] if isinstance(x, functools.partial) else []
            waiting += inner
            if hasattr(x, "untyped_storage"):  # PyTorch
                try:
                    storage = x.untyped_storage()
                    storages[storage.data_ptr() or id(x)] = storage.nbytes() if storage.data_ptr() else 0
                except (RuntimeError, NotImplementedError):  # a wrapper, whose parts are attributes
                    pass
            elif hasattr(x, "__dlpack__"):
                part = array(x)
                storages[part.__array_interface__["data"][0]] = part.nbytes
    return sum(storages.values())
