"""What a chart is: a drawing function with the words that go with it, and the tables that it draws from.

A drawing function takes the runs' tables and returns an Altair chart whose data are a table of its rows, or raises NoData
with the reason why there is nothing to draw. It may title the chart with a message (messages.titled): what the numbers show; the figure's own title is
then below it. A chart becomes small multiples ("panels") over whatever the sweep varied besides variant and length.
"""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import polars as pl
from families import VariantStyle

# The report's chapters, in order; those of a run begin with that of its main picture.
CHAPTERS = {
    "memory": "Memory", "time": "Time", "error": "Error", "quality": "Quality of a model’s predictions", "growth": "Growth",
    "model": "Whole models", "serving": "Serving",
}  # fmt: skip


@dataclass(frozen=True)
class Tables:
    """The runs of one report: every cell that was measured, and what goes into more detail."""

    cells: pl.DataFrame
    common: pl.DataFrame  # those of the experiments that have no figures of their own
    growth: pl.DataFrame
    positions: pl.DataFrame
    heads: pl.DataFrame
    moments: pl.DataFrame
    hits: pl.DataFrame
    style: VariantStyle
    answers: dict[str, dict]  # answers.json of each run, by its name


@dataclass(frozen=True)
class Figure:
    name: str  # file name and anchor
    title: str
    chapter: str  # of CHAPTERS
    how_to_read: str
    draw: Callable[[Tables], alt.TopLevelMixin]
    at_one_length: bool = False  # drawn for the length that a menu chooses; its title says which
    warning: Callable[[Tables], str] = lambda tables: ""  # what goes with the figure wherever it is shown, under its title
    also_common: bool = False  # the common figures draw its experiments, too, where nothing else was run
    own_style: bool = False  # its experiments' lines are policies over budgets, in colours apart from those of other figures
    experiments: tuple[str, ...] = ()  # whose it is, as list.py has it


def figure(name: str, title: str, chapter: str, how_to_read: str, **more) -> Callable[[Callable], Figure]:
    """Makes a drawing function the Figure of this name; `more` are Figure's other fields."""
    if chapter not in CHAPTERS:
        raise ValueError(f"figure {name}: no chapter '{chapter}'; there are {', '.join(CHAPTERS)}")
    return lambda draw: Figure(name, title, chapter, how_to_read, draw, **more)
