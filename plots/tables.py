"""The report's tables, as printed: measurements, predictions of models, and the texts that they write.

A table's columns are declared here: the words of a heading, the column of cells.csv behind it, and how a row's text is made.
Most have a second line in smaller print.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import polars as pl
from data import Run
from columns import Column
from known import called, heading, label_of, name_of, spec_of
from prepare import place, with_panel
from style import bytes_text, length_text, microseconds_text

CELL = "cell_index"  # a row's place among the cells of the report


@dataclass(frozen=True)
class Line:
    words: str | None  # of the heading, may be empty; None: the column's own
    column: str = ""  # of cells.csv: its meaning is the heading's tooltip
    text: Callable[[Mapping], str] = lambda row: ""
    left: bool = False
    tag: bool = False  # a verdict, in its colour
    hint: str = ""  # the column that is the text's tooltip

    @property
    def title(self) -> str:
        return heading(self.column) if self.words is None else self.words


def number(words: str | None, column: str, form: str, unit: str = "") -> Line:
    return Line(words, column, lambda row: "–" if row[column] is None else f"{row[column]:{form}}{unit}")


def size(words: str | None, column: str) -> Line:
    return Line(words, column, lambda row: bytes_text(row[column]))


def time(words: str, column: str) -> Line:
    return Line(words, column, lambda row: microseconds_text(row[column]))


def words(heading: str, column: str, missing: str = "–", tag: bool = False) -> Line:
    return Line(heading, column, lambda row: row[column] or missing, left=True, tag=tag)


def interval(low: str, high: str, write: Callable[[float], str], words: str = "interval") -> Line:
    text = lambda row: "" if row[low] is None or row[high] is None else f"{write(row[low])} – {write(row[high])}"  # noqa: E731
    return Line(words, low, text)


def tier_lines(tier: str) -> list[list[Line]]:
    held = [size(f"{tier}: held", f"bytes_{tier}"), size("read by a step", f"read_{tier}_bytes")]
    return [held, [number("GB/s", f"{tier}_read_gbps", ".3g"), number("of its ceiling", f"{tier}_ceiling_share", ".0%")]]


# Each column's lines. All tables begin with the variant.
VARIANT = [[Line("variant", "variant")]]
PREDICTIONS = [
    [size(None, "held_bytes_per_token"), size("peak", "peak_bytes")],
    [
        number(None, "perplexity", ".4g"),
        Line("± its error", "perplexity_se", lambda row: "" if row["perplexity_se"] is None else f"± {row['perplexity_se']:.2g}"),
    ],
    [number(None, "loss_change", "+.2g"), interval("loss_change_ci_low", "loss_change_ci_high", "{:+.2g}".format, "interval, nats")],
    [words("verdict", "verdict", tag=True)],
    [number(None, "kl_mean", ".2e"), number("p50", "kl_median", ".1e")],
    [number("KL, p99", "kl_p99", ".1e"), number("max", "kl_max", ".1e")],
    [number("top-1", "top1_agreement", ".2%"), Line("agreement")],
    [number("change of p", "p_change_rms", ".2%"), Line("correct token, RMS")],
    [number(None, "tokens_per_s", ".0f")],
]
REPLAYS = [
    [number("run at once, p50", "running_p50", ",.0f"), number("most", "running_peak", ",.0f")],
    [number("wait, p50", "waiting_p50", ",.0f"), number("most", "waiting_peak", ",.0f")],
    [size("peak held", "held_peak_bytes"), number("fragmentation", "fragmentation_share", ".1%")],
    [number("preempted per 1,000", "preemptions_per_1000", ",.1f"), number("refused", "refused", ",.0f")],
    [number("hit rate", "hit_rate", ".1%"), number("of the curve", "hit_rate_curve", ".1%")],
    [number("first token, p99", "ttft_p99_s", ".3g", " s"), interval("ttft_p99_s_ci_low", "ttft_p99_s_ci_high", "{:.3g}".format)],
    [number("per later token, p99", "tpot_p99_ms", ".3g", " ms")],
    [number("good", "good_share", ".1%"), interval("good_share_ci_low", "good_share_ci_high", "{:.1%}".format)],
    [words("times are", "times_from", missing="")],
]
TIERS = [
    *(lines for tier in ("hot", "warm", "disk") for lines in tier_lines(tier)),
    [number("from a device", "disk_device_share", ".0%")],
    [
        time("attend, p50", "attend_p50_us"),
        Line("bound", "tier_bound_us", lambda row: f"{microseconds_text(row['tier_bound_us'])} {row['tier_bound'] or ''}"),
    ],
]


# A table is of the experiments that write this column.
OF_PREDICTIONS, OF_REPLAYS = "perplexity", "running_p50"


def writers(columns: Mapping[str, Column], *names: str) -> list[str]:
    """The experiments that write one of the columns."""
    return [experiment for name in names if name in columns for experiment in columns[name].experiments]


def named_rows(rows: pl.DataFrame) -> Iterator[Mapping]:
    """With None in the columns that folders of earlier versions lack."""
    return (defaultdict(lambda: None, row) for row in rows.iter_rows(named=True))


def common(row: Mapping) -> dict:
    """The row, with the texts that all tables show; one that is not `ok` shows its reason in place of numbers."""
    spec = spec_of(row["variant"] or "")
    return {
        "row": row,
        "cell": row[CELL],
        "variant": row["variant"] or "no variant",
        "name": called(row) or "no variant",
        "keeps_all": row["keeps_all"] == 1,
        **{stage: name_of(getattr(spec, stage)) for stage in ("placement", "codec", "retention", "selection")},
        "status": (row["status"] or "no status").replace("_", " "),
        "ok": row["status"] == "ok",
        "reason": row["reason"] or "no reason recorded",
    }


def tiers(cells: pl.DataFrame) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of placements with several tiers: (heading, rows)."""
    if "bytes_warm" not in cells.columns:
        return
    rows = cells.filter(pl.col("bytes_warm").is_not_null() & (pl.col("status") == "ok"))
    if rows.is_empty():
        return
    rows = with_panel(rows).sort("experiment", "panel", "seq_len", maintain_order=True)
    keys = ("experiment", "panel", "seq_len")
    for key, group in groupby(named_rows(rows), key=lambda row: tuple(row[k] for k in keys)):
        experiment, panel, length = key
        heading = " · ".join(part for part in (experiment, f"{length_text(length)} tokens", panel) if part)
        yield heading, [common(row) for row in group]


def replays(cells: pl.DataFrame, columns: Mapping[str, Column]) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of replays, one a sweep point: (heading, rows)."""
    rows = cells.filter(pl.col("experiment").is_in(writers(columns, OF_REPLAYS)))
    if rows.is_empty():
        return
    rows = with_panel(rows).sort("panel", maintain_order=True)
    for panel, group in groupby(named_rows(rows), key=lambda row: row["panel"]):
        found = list(group)
        yield panel or found[0]["workload"] or "", [common(row) for row in found]


def predictions(cells: pl.DataFrame, columns: Mapping[str, Column]) -> Iterator[tuple[str, list[dict]]]:
    """The groups of the table of what models predict with the caches: (heading, rows)."""
    for experiment in writers(columns, OF_PREDICTIONS):
        rows = cells.filter(pl.col("experiment") == experiment)
        if rows.is_empty():
            continue
        rows = with_panel(rows).sort("panel", "seq_len", maintain_order=True)
        for (panel, at), group in groupby(named_rows(rows), key=lambda row: (row["panel"], place(row))):
            heading = " · ".join(part for part in (experiment, at, panel) if part)
            yield heading, [common(row) for row in group]


def generated(runs: list[Run]) -> Iterator[tuple[str, list[dict]]]:
    """Texts side by side with the full f32 cache's, a group a prompt and temperature: (heading, rows)."""
    for run in runs:
        order = ["temperature", "sequence"]
        rows = run.texts.sort(order, maintain_order=True).iter_rows(named=True)
        for (temperature, sequence), group in groupby(rows, key=lambda row: tuple(row[k] for k in order)):
            texts = list(group)
            how = "greedy" if temperature == 0 else f"temperature {temperature:g}"
            named = f"{run.name} · " if len(runs) > 1 else ""
            yield f"{named}{how} · prompt {sequence + 1:.0f}", [text_row(row) for row in texts]


def text_row(row: dict) -> dict:
    """The two texts, each split where they begin to differ, and the words of both from there on."""
    text, full = row["text"] or "", row["full_text"] or ""
    common = os.path.commonprefix([text, full])
    common_tokens = row["common_tokens"]
    word = max(common.rfind(" "), common.rfind("\n")) + 1  # the beginning of the first that differs
    here, there = ("“" + " ".join(of[word:].split()[:4]) + "”" for of in (text, full))
    differs = "" if common_tokens is None else f"after {common_tokens:.0f} token{'s' * (common_tokens != 1)}: {here}, the full cache {there}"
    return {
        "variant": label_of(row["variant"]),
        "prompt": row["prompt"] or "",
        "differs": differs or "never",
        "common": common,
        "rest": text[len(common) :],
        "full_rest": full[len(common) :],
    }
