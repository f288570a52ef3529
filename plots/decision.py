"""The first screen at each sweep point: the sentence that answers, and the table to decide by, both ranked by ranking.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl
import whiskers
from known import called, heading, label_of, name_of, spec_of
from markupsafe import Markup
from prepare import along, is_aa_test, place, with_absent, with_panel
from ranking import MEASURES, NUMBERS, SAID, TEXTS, Measure, Ranking, Reach, Row, about_answers, comparable, evicts, front, has_one_baseline, is_lossless, keeps_limit, limit_of, measured_by, named, own, pace, ranking, told, untested_text
from style import bytes_text
from tables import CELL
from trust import leaves_out_one

FEW_BITS = 5  # stored bits a value: below, codecs differ in what they lose
NAMED = 3  # tied variants in a sentence
FAR = 1.5  # times the baseline's time: a variant that is worth a warning
LATENCIES = [measure for measure in MEASURES if measure.kind == "served" and "p99" in measure.column]
IDLE = "its budget is not below the sequence, so it kept all tokens"


@dataclass(frozen=True)
class Heading:
    words: str
    columns: list[str]  # of cells.csv
    below: str = ""
    drawn: Markup = Markup("")
    left: bool = False


@dataclass(frozen=True)
class Cell:
    text: str
    below: str = ""
    value: float | str | None = None  # what sorts it
    drawn: Markup = Markup("")
    tag: str = ""  # the class of a tag's colour
    noise: str = ""


@dataclass(frozen=True)
class Line:
    """A row of the table; `facts` are what filters compare."""

    cell: int
    name: str
    variant: str
    note: str
    cells: list[Cell]
    status: str
    reason: str
    facts: dict[str, str | float | None]
    place: str = ""  # best, tied, or "" in the ranking


@dataclass(frozen=True)
class Point:
    panel: str
    place: str
    sentences: list[str]  # with variants in backquotes
    headings: list[Heading]
    lines: list[Line]
    experiment: str
    noise: list[str]
    measure: str = ""  # the column by which it is ranked
    length: float | None = None  # tokens

    @property
    def title(self) -> str:
        return f"{self.panel}, {self.place}" if self.panel else self.place


def points(cells: pl.DataFrame) -> list[Point]:
    """The sweep points with a result, panel by panel in the order of the file, the longest of a panel first. `cells` has the
    index of each cell among the report's."""
    is_prompt = pl.col("phase") == "prefill"  # all of its caches hold the same
    cells = with_absent(cells, [*NUMBERS, "bytes_workspace_peak", "model_layers", "model_bytes", "bytes_disk", "refused", *(m.column.replace("p99", p) for m in LATENCIES for p in ("p50", "p90"))], [*TEXTS, "arm", "reason", "phase"])
    cells = cells.with_columns(
        bytes_per_token=pl.when(~is_prompt.fill_null(False)).then("bytes_per_token"),
        workspace_sequence=pl.when(is_prompt).then(pl.col("bytes_workspace_peak") / pl.col("batch")),
    )
    rows = with_panel(cells).with_columns(aa_test=is_aa_test()).sort(CELL)
    axes = along(rows.columns)
    panels: dict[str, dict[tuple, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.iter_rows(named=True):
        panels[row["panel"]][tuple(row[column] for column in axes)].append(row)
    found = []
    for at in panels.values():
        longest_first = sorted(at.values(), key=lambda rows: [-(rows[0].get(c) or 0) for c in ("seq_len", "distance")])
        found += [point(rows) for rows in longest_first if any(row["status"] == "ok" for row in rows)]
    return [p for p in found if len(p.headings) > 1]


def point(rows: list[Row]) -> Point:
    tested = [row for row in rows if row["status"] == "ok" and not row["aa_test"]]
    by = measured_by(tested)
    main = next(iter(by.values()), None)
    ordered = ranking(tested, main, limited=False) if main else None
    in_order = [*(ordered.rows if ordered else ()), *(row for row in tested if not ordered or row not in ordered.rows)]
    best = ranking(named(tested), main) if main and main.column != "accuracy" else None
    marks = dict(zip(map(id, in_order), front(in_order)))
    columns = list(columns_of(in_order, by, best))
    places = {id(best.best): "best"} | {id(row): "tied" for row in best.tied} if best and (main.kind != "time" or comparable(tested)) else {}
    lines = [line(row, [write(row) for _, write in columns], marks.get(id(row), ""), places.get(id(row), "")) for row in in_order]
    lines += [line(row, [], "", "") for row in rows if row["status"] != "ok"]
    first = rows[0]
    headings = [Heading("variant", ["variant"], left=True), *(head for head, _ in columns)]
    aa_tests = [row for row in rows if row["aa_test"] and None not in (row["ratio_p50"], row["ratio_ci_low"], row["ratio_ci_high"])]
    said = list(sentences(named(tested), by, place(first), aa_tests))
    return Point(first["panel"] or first["experiment"] or "", place(first), said, headings, lines, first["experiment"] or "", list(map(aa_text, aa_tests)), main.column if main else "", first["seq_len"])


def line(row: Row, cells: list[Cell], on_front: str, ranked: str) -> Line:
    spec = spec_of(row["variant"] or "")
    facts = {stage: name_of(getattr(spec, stage)) for stage in ("placement", "codec", "retention", "selection")}
    error = limit_of(row)
    facts |= {"bits": row["bits_per_value"], "bytes": row["bytes_per_token"], "error": row[error] if error else None, "front": on_front}
    facts["status"] = (row["status"] or "no status").replace("_", " ")
    note = untested_text(row) or (IDLE if row["keeps_all"] == 1 else f"keeps {row['kept_tokens']:,.0f} of {row['seq_len']:,.0f} tokens" if evicts(row) and row["kept_tokens"] and row["seq_len"] else "")
    note = ", ".join(filter(None, (note, row["oracle"] and f"an oracle: it {row['oracle']}")))
    return Line(row[CELL], called(row), row["variant"] or "", note, cells, facts["status"], row["reason"] or "no reason recorded", facts, ranked)


# --- the table's columns, of those that this point can fill ---


def columns_of(rows: list[Row], by: Mapping[str, Measure], best: Ranking | None) -> Iterator[tuple[Heading, object]]:
    timed, rated, sized = by.get("time"), by.get("rate"), by.get("bytes")
    if timed:
        yield time_column(rows, timed)
    if rated:
        yield written(rated) if any(row.get("requests_per_s") is not None for row in rows) else dotted(rows, rated)
    yield from served(rows, rated)
    if sized:
        yield bytes_column(rows, sized)
    if any(row["bits_per_value"] is not None and row.get("requests_per_s") is None for row in rows):
        yield Heading(heading("bits_per_value"), ["bits_per_value"], "per value"), lambda row: Cell(optional(row["bits_per_value"], "{:.3g}"), value=row["bits_per_value"])
    errors = [m for m in MEASURES if m.kind == "error" and any(row[m.column] is not None for row in rows)]
    for error in errors:
        yield dotted(rows, error) if not timed and not rated and error is errors[-1] else written(error)
    if any(row["verdict"] not in (None, "", "baseline") for row in rows) or any(row["noise"] for row in rows):
        ratio = timed.ratio if timed else ""
        decides = f"{ratio}_p50" if ratio not in ("", "ratio") else "verdict"
        yield Heading("verdict", [decides, "versus", "noise"], left=True), lambda row: Cell((told(row, ratio) or "–").replace("_", " "), value=told(row, ratio), tag=told(row, ratio), noise=row["noise"] or "")


def served(rows: list[Row], rated: Measure | None) -> Iterator[tuple[Heading, object]]:
    """What requests got: the other rates, of which earlier versions did not record goodput, and percentiles of their times."""
    if all(row.get("requests_per_s") is None for row in rows):
        return
    for measure in MEASURES:
        if measure in LATENCIES:
            yield percentiles(measure)
        elif measure.kind in ("rate", "served") and measure is not rated and measure.column != "accuracy":
            recorded = any(row[measure.column] is not None for row in rows)
            yield written(measure) if recorded else (Heading(measure.heading, [measure.column]), lambda row: Cell("not recorded"))


def percentiles(measure: Measure) -> tuple[Heading, object]:
    write = lambda row, p: optional(row[measure.column.replace("p99", p)], f"{{:.3g}} {measure.unit}")  # noqa: E731
    columns = [measure.column.replace("p99", p) for p in ("p99", "p50", "p90")]
    return Heading(measure.heading, columns, "p50 · p90"), lambda row: Cell(write(row, "p99"), f"{write(row, 'p50')} · {write(row, 'p90')}", row[measure.column])


def time_column(rows: list[Row], timed: Measure) -> tuple[Heading, object]:
    known = [row for row in rows if pace(row, timed.ratio)]
    axis = whiskers.axis_of([pace(row, timed.ratio) for row in known], mark=1.0) if any(row["verdict"] != "baseline" for row in known) else None
    if axis:
        versus = sorted({row["versus"] for row in rows if row["versus"]})
        columns = [timed.ratio + end for end in ("_p50", "_ci_low", "_ci_high")]
        return (Heading(heading(f"{timed.ratio}_p50", label_of(versus[0]) if len(versus) == 1 else ""), [*columns, timed.column], drawn=whiskers.scale(axis)), lambda row: ratio_cell(row, timed, axis))
    return written(timed)


def ratio_cell(row: Row, timed: Measure, axis: whiskers.Axis) -> Cell:
    reach = pace(row, timed.ratio)
    took = optional(row[timed.column], timed.write)
    if reach is None:
        return Cell("–", took)
    if row["verdict"] == "baseline":
        return Cell("1", took, 1.0, whiskers.dot(axis, reach, "baseline", "1"))
    said = f"{times(reach[0])} ({span(reach)})"
    return Cell(said, took, reach[0], whiskers.dot(axis, reach, told(row, timed.ratio), said))


def dotted(rows: list[Row], measure: Measure) -> tuple[Heading, object]:
    """A measure without a baseline, on an axis of its own."""
    signed = measure.column == "loss_change"
    axis = whiskers.axis_of([own(row, measure) for row in rows if row[measure.column] is not None], 0.0 if signed else None, signed)
    head, text = written(measure)
    if axis is None:
        return head, text

    def cell(row: Row) -> Cell:
        plain = text(row)
        if plain.value is None or (plain.value <= 0 and not signed):
            return plain
        return Cell(plain.text, plain.below, plain.value, whiskers.dot(axis, own(row, measure), row["verdict"] or "plain", plain.text))

    return Heading(head.words, head.columns, head.below, whiskers.scale(axis)), cell


def written(measure: Measure) -> tuple[Heading, object]:
    ends = measure.interval

    def cell(row: Row) -> Cell:
        value = row[measure.column]
        low, high = (None, None) if not ends or value is None else (row[ends[0]], row[ends[1]])
        between = "" if None in (low, high) or low == high else f"{measure.write(low)} – {measure.write(high)}"
        return Cell(optional(value, measure.write), between, value)

    return Heading(measure.heading, [measure.column, *(ends or ())]), cell


def bytes_column(rows: list[Row], sized: Measure) -> tuple[Heading, object]:
    most = max(row[sized.column] or 0 for row in rows)
    whole = sized.column == "bytes_per_token"

    def cell(row: Row) -> Cell:
        value = row[sized.column]
        all_layers = f"{bytes_text(row['model_bytes'] / (row['batch'] or 1))} in {row['model_layers']:.0f} layers" if whole and row["model_bytes"] and row["model_layers"] else ""
        disk = f"{bytes_text(row['bytes_disk'])} on disk" if row["bytes_disk"] else ""
        return Cell(bytes_text(value), ", ".join(filter(None, (all_layers, disk))), value, whiskers.bar(value or 0, most))

    return Heading(sized.heading, [sized.column, "bytes_payload", "bytes_metadata", "bytes_slack"] + ["model_bytes"] * whole), cell


# --- the sentence ---


def sentences(rows: list[Row], by: Mapping[str, Measure], at: str, aa_tests: list[Row]) -> Iterator[str]:
    """The fastest and the slowest, or why there is none; what loses least of few bits, or of all where nothing was timed."""
    main = by.get("time") or by.get("rate")
    lead = f"{'With' if rows[0].get('requests') else 'At'} {at}, "
    if main and main.kind == "time" and not comparable(rows):
        yield f"{lead}no variant is called faster or slower: {' and '.join(doubts(rows, aa_tests))}."
        lead = ""
    elif main:
        yield f"{lead}{about_answers(rows, lambda row: f'`{called(row)}`')}." if main.column == "accuracy" else about_speed(rows, main, lead)
        lead = ""
    answered = [row for row in rows if row.get("requests_per_s") is not None and not row.get("refused")]
    for measure in LATENCIES if len(answered) > 1 else ():
        fastest = ranking(answered, measure)
        yield f"`{called(fastest.best)}` {measure.is_best}: {amount(fastest.best, measure)}{ties(fastest)}."
    if error := by.get("error"):
        few = [row for row in rows if row["bits_per_value"] is not None and row["bits_per_value"] <= FEW_BITS and not evicts(row)]
        lossy = [row for row in rows if not is_lossless(row)]
        if len(few) > 1:
            yield about_error(few, error, lead, f"of those with at most {FEW_BITS} bits a value")
        elif not main and len(lossy) > 1:
            yield about_error(lossy, error, lead, "of those that lose something")
    elif not main and "bytes" in by:
        smallest = ranking(rows, by["bytes"])
        yield f"{lead}`{called(smallest.best)}` {by['bytes'].is_best}: {amount(smallest.best, by['bytes'])}{ties(smallest)}."


def doubts(rows: list[Row], aa_tests: list[Row]) -> Iterator[str]:
    """Why nothing here is compared with the baseline."""
    yield from (f"the baseline `{called(row)}` is noisy ({row['noise']})" for row in rows if row["verdict"] == "baseline" and row["noise"])
    yield from (f"the baseline `{called(row)}` takes {over_itself(row)} of its own time" for row in aa_tests if leaves_out_one(row))


def about_speed(rows: list[Row], measure: Measure, lead: str) -> str:
    ranked = ranking(rows, measure)
    if not ranked:
        limit = next(filter(None, map(limit_of, rows)), None)
        return f"{lead}none has {SAID[limit]}." if limit else f"{lead}none was put to the test."
    best = ranked.best
    limit = f" of those with {ranked.limit}" if ranked.limit and len(ranked.rows) < sum(row[measure.column] is not None for row in rows) else ""
    said = f"{lead}`{called(best)}` {measure.is_best}{limit}: {amount(best, measure)}"
    said += f" ({IDLE})" if best["keeps_all"] == 1 else ""
    if evicts(best):
        keeping = ranking([row for row in rows if not evicts(row)], measure)
        said += f", but keeps {best['kept_tokens']:,.0f} of {best['seq_len']:,.0f} tokens" if best["kept_tokens"] and best["seq_len"] else ", but evicts tokens"
        said += f"; of those that keep every token `{called(keeping.best)}`, {amount(keeping.best, measure)}" if keeping else ""
    said += ties(ranked)
    compared = rows if has_one_baseline(rows) else []
    slowest = max((row for row in compared if row is not best and pace(row, measure.ratio)), key=lambda row: pace(row, measure.ratio)[0], default=None)
    if slowest and pace(slowest, measure.ratio)[1] > FAR:
        said += f"; slowest is `{called(slowest)}` with {times(pace(slowest, measure.ratio)[0])} times it ({span(pace(slowest, measure.ratio))})"
    return said + "."


def amount(row: Row, measure: Measure) -> str:
    reach = pace(row, measure.ratio)
    if row["verdict"] == "baseline" and reach:
        return f"{measure.write(row[measure.column])}, the baseline itself"
    if reach and row["versus"]:
        return f"{times(reach[0])} of `{label_of(row['versus'])}`’s time ({span(reach)})"
    value, low, high = own(row, measure)
    unit = f" {measure.unit}" if measure.unit else ""
    return measure.write(value) + unit + ("" if low == high else f" ({measure.write(low)}–{measure.write(high)})")


def about_error(rows: list[Row], error: Measure, lead: str, of: str) -> str:
    ranked = ranking(rows, error, limited=False)
    return f"{lead}`{called(ranked.best)}` {error.is_best} {of}: {amount(ranked.best, error)}{ties(ranked)}."


def ties(ranked: Ranking) -> str:
    """Whether the best is certain."""
    names = [f"`{called(row)}`" for row in ranked.tied]
    if not names:
        return "" if len(ranked.rows) < 2 or all(low == high for _, low, high in ranked.reaches[1:]) else "; no other is statistically tied"
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED + 1 else []
    listed = names[:NAMED] + more if more else names
    joined = ", ".join(listed[:-1]) + (" and " if len(listed) > 1 else "") + listed[-1]
    same = "the same, as printed" if all(low == high for _, low, high in ranked.reaches) else "statistically tied"
    return f"; {joined} {'is' if len(names) == 1 else 'are'} {same}"


def aa_text(row: Row) -> str:
    """What an A/A test says of the differences at its sweep point."""
    measured = f"{called(row)} over itself takes {over_itself(row)}"
    if not leaves_out_one(row):
        return f"A/A test passed: {measured}."
    return f"A/A test failed: {measured}; differences of {abs(row['ratio_p50'] - 1):.0%} are noise here."


def over_itself(row: Row) -> str:
    reach = row["ratio_p50"], row["ratio_ci_low"], row["ratio_ci_high"]
    return f"{times(reach[0])} ({span(reach)})"


def optional(value: float | None, write) -> str:
    return "–" if value is None else write.format(value) if isinstance(write, str) else write(value)


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def span(reach: Reach) -> str:
    return f"{times(reach[1])}–{times(reach[2])}"
