"""The report's figures as Altair charts, drawn by the project's plots/ on the files of a results folder."""

from __future__ import annotations

import importlib
import sys
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import altair as alt
import polars as pl

importing = Lock()


@cache
def plots() -> dict[str, ModuleType]:
    """The modules of plots/. They import each other by names as short as `data` and `style`, so they are taken out of
    sys.modules again: a user's own modules may be called so."""
    from kvlab.results import project_home

    folder = project_home() / "plots"
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}

    def taken() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}

    with importing:
        before = taken()
        sys.path.insert(0, str(folder))
        try:
            importlib.import_module("report")
            return taken()
        finally:
            sys.path.remove(str(folder))
            taken()
            sys.modules.update(before)


def load_runs(folder: Path) -> list[Any]:
    """The folder's runs, one a host. Throws ValueError."""
    try:
        return plots()["data"].load_runs([folder])
    except plots()["columns"].BadResults as error:
        raise ValueError(str(error)) from None


def answers(folder: Path) -> str:
    """The report's sentences and tables, as HTML for a notebook."""
    return plots()["page"].notebook(folder.name, load_runs(folder))


class Plots:
    """plot.NAME() draws the figure of that name; help(plot.NAME) says how to read it."""

    def __init__(self, folder: Path) -> None:
        runs = load_runs(folder)
        self._tables = plots()["report"].tables_of(runs)
        self._subtitle = [plots()["page"].run_line(run) for run in runs]
        self._figures = {figure.name: figure for figure in plots()["figures.list"].FIGURES}

    def __dir__(self) -> list[str]:
        return [name for name in self._figures if self._specification(name)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._figures:
            raise AttributeError(f"no figure '{name}'; there are: {', '.join(vars(self).get('_figures', []))}")
        draw = partial(self._draw, name)
        draw.__doc__ = f"{self._figures[name].title}\n\n{self._figures[name].how_to_read}"
        return draw

    def _draw(self, name: str) -> alt.TopLevelMixin:
        """Throws ValueError with the reason where there is nothing to draw."""
        try:
            specification = self._raw(name)
        except plots()["prepare"].NoData as reason:
            raise ValueError(f"{name}: {reason}") from None
        return alt.Chart.from_dict(specification)

    def _raw(self, name: str) -> dict[str, Any]:
        return plots()["report"].specification(self._figures[name], self._tables, self._subtitle)

    def _specification(self, name: str) -> dict[str, Any] | None:
        try:
            return self._raw(name)
        except plots()["prepare"].NoData:
            return None
