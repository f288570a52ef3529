"""Titles that say what a chart shows, made of the numbers that it draws. Where intervals overlap they say so."""

import json
import textwrap
from collections.abc import Callable

import altair as alt
import polars as pl
from answers import UNRELIABLE
from known import label_of

CHARACTERS = 84  # in a line of a title


def titled(chart, message: str | dict[float, str] | None):
    """The chart with its message; of several, a length each, that of the length that the menu chooses is shown."""
    if not message:
        return chart
    if isinstance(message, str):
        return chart.properties(title=alt.TitleParams(text=wrapped(message)))
    texts = {str(int(length)): wrapped(text) for length, text in message.items()}
    return chart.properties(title=alt.TitleParams(text=alt.expr(f"({json.dumps(texts, ensure_ascii=False)})[length]")))


def wrapped(message: str) -> list[str]:
    return textwrap.wrap(message, CHARACTERS, break_long_words=False, break_on_hyphens=False)


def at_each_length(rows: pl.DataFrame, write: Callable[[pl.DataFrame], str]) -> dict[float, str]:
    return {
        length: f"{write(rows.filter(pl.col('seq_len') == length))} at {length:,.0f} tokens"
        for length in sorted(set(rows["seq_len"]))
    }


def times(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """0.115 -> '0.12 times', 3.71 -> '3.7 times', 421.4 -> '421 times (394–521)'."""
    value, *ends = (f"{x:,.0f}" if x >= 10 else f"{x:.2g}" if x < 1 else f"{x:.1f}" for x in (ratio, low, high) if x is not None)
    return f"{value} times" + (f" ({'–'.join(ends)})" if len(ends) == 2 else "")


def from_to(least: dict, most: dict, share: str) -> str:
    """'from 3% (paged f16) to 9% (paged f32)'; of one variant its share alone."""
    low, high = (f"{row[share]:.0%} ({label_of(row['variant'])})" for row in (least, most))
    return low if least["variant"] == most["variant"] else f"from {low} to {high}"


def place(rows: pl.DataFrame) -> str:
    """The panel of the rows, if there are several."""
    panel = rows["panel"][0] if rows.height else ""
    return f"{panel}: " if panel else ""


def answer(rows: pl.DataFrame) -> str | None:
    """The first screen's answer for the sweep point of these rows."""
    return rows["answer"][0] or None


def count_of_verdicts(rows: pl.DataFrame) -> str:
    counts = {verdict: rows.filter(pl.col("verdict") == verdict).height for verdict in ("faster", "slower", UNRELIABLE, "ambiguous")}
    against = ", ".join(sorted({label_of(name) for name in rows["versus"].drop_nulls()}))
    told = {"ambiguous": "statistically tied"}
    said = [f"{count} {'is' if count == 1 else 'are'} {told.get(verdict, verdict)}" for verdict, count in counts.items() if count]
    where = " in all panels together" if "panel" in rows.columns and rows["panel"].n_unique() > 1 else ""
    return f"Variants compared with {against}{where}: {', '.join(said)}"
