"""Titles that say what a chart shows, made of the numbers that it draws. Where intervals overlap they say so."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import altair as alt
import polars as pl
from known import label_of, parameters, spec_of
from prepare import with_absent
from ranking import LIMITS, SAID, UNRELIABLE, keeps_limit
from style import bytes_text

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


def times(ratio: float) -> str:
    """0.115 -> '0.12×', 3.71 -> '3.7×', 421.4 -> '421×'."""
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×" if ratio < 1 else f"{ratio:.1f}×"


def span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({times(low)[:-1]}–{times(high)[:-1]})"


def place(rows: pl.DataFrame) -> str:
    """The panel of the rows, if there are several."""
    panel = rows["panel"][0] if rows.height else ""
    return f"{panel}: " if panel else ""


def slowest_and_fastest(rows: pl.DataFrame) -> str | None:
    """The largest difference from the baseline that the intervals show, of the rows of one panel and length; faster is only
    named what keeps the limit of error."""
    rows = with_absent(rows, ["ratio_p50", "ratio_ci_low", "ratio_ci_high", *LIMITS], ["versus", "experiment", "oracle"])
    known = rows.filter(pl.col("ratio_p50").is_not_null(), pl.col("versus").is_not_null(), pl.col("oracle").is_null())
    if known.is_empty():
        return None
    against = label_of(known["versus"][0])
    slower = known.filter(pl.col("verdict") == "slower").sort("ratio_p50")
    keeps = pl.struct(*LIMITS).map_elements(keeps_limit, return_dtype=pl.Boolean)
    faster = known.filter(pl.col("verdict") == "faster", keeps).sort("ratio_p50", descending=True)
    if (known["verdict"] == UNRELIABLE).any():
        return f"No variant is called faster or slower than {against}, whose times are noisy or differ from themselves"
    said = [
        f"{label_of(row['variant'])} takes {times(row['ratio_p50'])}{span(row['ratio_ci_low'], row['ratio_ci_high'])}"
        for extreme in (slower, faster) if extreme.height for row in (extreme.row(-1, named=True),)
    ]  # fmt: skip
    if not said:
        if (known["verdict"] == "faster").any():
            return f"What is faster than {against} has {SAID['err_rel_l2'].replace('of at most', 'above')}"
        return f"Steps of all variants are statistically tied with those of {against}"
    steps = "the median step" if "append_total_us" in known.columns and known["append_total_us"].is_not_null().all() else "the time"
    return f"{', '.join(said)} {steps} of {against}"


def least_of_four_bits(rows: pl.DataFrame, value: str, unit: str) -> str | None:
    """The codec of 4 to 6 stored bits a value that has the least of `value` among those that keep every token, and whether the
    next one is statistically tied."""
    specs = {name: spec_of(name) for name in set(rows["variant"])}
    # With read=copy the bits are the same.
    codecs = [name for name, spec in specs.items() if spec.retention == "full" and parameters(spec.codec).get("read") != "copy"]
    bits = pl.col("bits_per_value")
    known = rows.filter(bits > 4, bits <= 6, pl.col("variant").is_in(codecs), pl.col(value) > 0).sort(value)
    if "panel" in known.columns:
        known = known.filter(pl.col("panel") == pl.col("panel").first())
    if known.height < 2:
        return None
    first, second = known.row(0, named=True), known.row(1, named=True)
    ends = f"{value}_ci_low", f"{value}_ci_high"
    known_ends = all(first.get(end) is not None for end in ends)
    between = f", {first[ends[0]]:.1g}–{first[ends[1]]:.1g}" if known_ends else ""
    apart = not known_ends or first[ends[1]] < (second[ends[0]] or 0)
    held = f" with {bytes_text(first['held_bytes_per_token'])} a token," if "held_bytes_per_token" in first else ""
    said = "loses least" if apart else f"is statistically tied with {label_of(second['variant'])}"
    return f"Of the codecs that store 4 to 6 bits a value {label_of(first['variant'])} {said} ({first[value]:.1g} {unit}{between}),{held}"


def count_of_verdicts(rows: pl.DataFrame) -> str:
    counts = {verdict: rows.filter(pl.col("verdict") == verdict).height for verdict in ("faster", "slower", UNRELIABLE, "ambiguous")}
    against = ", ".join(sorted({label_of(name) for name in rows["versus"].drop_nulls()}))
    said = [f"{count} {verdict}" for verdict, count in counts.items() if count and verdict != "ambiguous"]
    unclear = counts["ambiguous"]
    said += [f"{unclear} statistically tied with it"] if unclear else []
    where = " in all panels together" if "panel" in rows.columns and rows["panel"].n_unique() > 1 else ""
    return f"Beside {against}: {', '.join(said)}{where},"
