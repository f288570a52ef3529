"""The first screen at each sweep point: the sentence that answers, and the table to decide by, as answers.json has them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl
import whiskers
from data import Run
from known import called, heading, label_of, name_of, spec_of
from markupsafe import Markup
from prepare import along, place, with_absent, with_panel
from style import bytes_text, microseconds_text
from tables import CELL

Row = Mapping  # of cells.csv, with None where nothing was measured
Reach = tuple[float, float, float]  # value, and the ends of its interval


@dataclass(frozen=True)
class Measure:
    """How the table shows a quantity that answers.json may rank by."""

    kind: str
    column: str
    write: Callable[[float], str]
    interval: tuple[str, str] | None = None  # columns
    ratio: str = ""  # the beginning of the columns with its ratio to `versus`
    unit: str = ""
    derived_from: str = ""  # the column of cells.csv whose heading it bears

    @property
    def heading(self) -> str:
        return heading(self.derived_from or self.column)


def scientific(value: float) -> str:
    return f"{value:.2g}".replace("e-0", "e-")


def rounded(rate: float) -> str:
    """To three digits, as 3,120 and 5.61."""
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 100 else f"{rate:.3g}"


def of_time(column: str, stem: str, ratio: str = "") -> Measure:
    return Measure("time", column, microseconds_text, (f"{stem}_ci_low_us", f"{stem}_ci_high_us"), ratio)


def estimated(kind: str, column: str, write: Callable[[float], str], unit: str = "") -> Measure:
    return Measure(kind, column, write, (f"{column}_ci_low", f"{column}_ci_high"), unit=unit)


MEASURES = [
    of_time("append_total_us", "append_total", "append_total_ratio"), of_time("step_p50_us", "step", "ratio"), of_time("prefill_p50_us", "prefill", "ratio"),
    of_time("cold_attend_p50_us", "cold", "cold_ratio"), of_time("fork_p50_us", "fork"),
    *(estimated("rate", column, "{:.3g}".format) for column in ("goodput_per_s", "requests_per_s")), estimated("rate", "accuracy", "{:.0%}".format),
    estimated("served", "served_tokens_per_s", rounded), estimated("served", "ttft_p99_s", "{:.3g}".format, "s"), estimated("served", "tpot_p99_ms", "{:.3g}".format, "ms"),
    Measure("bytes", "bytes_per_token", bytes_text, derived_from="held_bytes_per_token"),
    Measure("bytes", "workspace_sequence", bytes_text, derived_from="bytes_workspace_peak"),
    Measure("bytes", "held_peak_bytes", bytes_text),
    Measure("error", "err_rel_l2", scientific, ("err_ci_low", "err_ci_high")),
    estimated("error", "kl_mean", scientific), estimated("error", "loss_change", "{:+.2g}".format),
]  # fmt: skip
NAMED = {measure.derived_from or measure.column: measure for measure in MEASURES}  # as answers.json names them
NUMBERS = [
    *(column for measure in MEASURES for column in (measure.column, *(measure.interval or ()))),
    *(f"{prefix}{end}" for prefix in ("append_total_ratio", "ratio", "cold_ratio") for end in ("_p50", "_ci_low", "_ci_high")),
    *"bits_per_value held_bytes_per_token bytes_workspace_peak model_layers model_bytes bytes_disk".split(),
]  # fmt: skip
LATENCIES = [measure for measure in MEASURES if measure.kind == "served" and "p99" in measure.column]


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
    why: str = ""  # nothing was measured


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


def points(cells: pl.DataFrame, runs: list[Run]) -> list[Point]:
    """The sweep points with a result, panel by panel in the order of the file, the longest of a panel first. `cells` of these runs has the
    index of each cell among the report's."""
    is_prompt = pl.col("phase") == "prefill"  # all of its caches hold the same
    cells = with_absent(cells, [*NUMBERS, *(m.column.replace("p99", p) for m in LATENCIES for p in ("p50", "p90"))], ["verdict", "versus", "noise", "arm", "reason", "phase"])
    cells = cells.with_columns(
        bytes_per_token=pl.when(~is_prompt.fill_null(False)).then("bytes_per_token"),
        workspace_sequence=pl.when(is_prompt).then(pl.col("bytes_workspace_peak") / pl.col("batch")),
    )
    rows = with_panel(cells).sort(CELL)
    axes = along(rows.columns)
    concluded = {run.name: run.answers for run in runs}
    panels: dict[str, dict[tuple, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.iter_rows(named=True):
        panels[row["panel"]][tuple(row[column] for column in axes)].append(row)
    found = []
    for at in panels.values():
        longest_first = sorted(at.values(), key=lambda rows: [-(rows[0].get(c) or 0) for c in ("seq_len", "distance")])
        found += [point(rows, concluded[rows[0]["run"]]) for rows in longest_first if any(row["status"] == "ok" for row in rows)]
    return [p for p in found if len(p.headings) > 1]


def point(rows: list[Row], answers: Mapping) -> Point:
    first = rows[0]
    concluded = answers["points"][first["point"]]
    ranked = sorted((row for row in rows if row["rank"] is not None), key=lambda row: row["rank"])
    by = {kind: NAMED[column] for kind, column in concluded["measures"].items()}
    columns = list(columns_of(ranked, by))
    limit = concluded["limit"] or concluded["measures"].get("error", "")
    lines = [line(row, [explained(write(row), row, head) for head, write in columns], limit) for row in ranked]
    lines += [line(row, [], limit) for row in rows if row["status"] != "ok"]
    headings = [Heading("variant", ["variant"], left=True), *(head for head, _ in columns)]
    lead = f"{'With' if first.get('requests') else 'At'} {place(first)}, "
    said = [(lead if at == 0 else "") + sentence for at, sentence in enumerate(concluded["sentences"])]
    main = next(iter(by.values()), None)
    return Point(first["panel"] or first["experiment"] or "", place(first), said, headings, lines, first["experiment"] or "",
                 [test["text"] for test in concluded["tests"]], main.column if main else "", first["seq_len"])  # fmt: skip


def explained(cell: Cell, row: Row, head: Heading) -> Cell:
    """With the reason where the cell has a dash."""
    if cell.text != "–":
        return cell
    column = head.columns[0]
    if "ratio" not in column and column != "verdict":
        return replace(cell, why=f"no {column}: the {row['experiment']} experiment does not measure it for this variant")
    return replace(cell, why=f"not compared: {label_of(row['versus'])} has no such time here" if row["versus"] else "not compared: no baseline at this sweep point")


def line(row: Row, cells: list[Cell], limit: str) -> Line:
    spec = spec_of(row["variant"] or "")
    facts = {stage: name_of(getattr(spec, stage)) for stage in ("placement", "codec", "retention", "selection")}
    facts |= {"bits": row["bits_per_value"], "bytes": row["bytes_per_token"], "error": row.get(limit), "front": row["on_front"]}
    facts["status"] = (row["status"] or "no status").replace("_", " ")
    return Line(row[CELL], called(row), row["variant"] or "", row["note"], cells, facts["status"], row["reason"] or "no reason recorded", facts, row["ranked"])


# --- the table's columns, of those that this point can fill ---


def columns_of(rows: list[Row], by: Mapping[str, Measure]) -> Iterator[tuple[Heading, object]]:
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
        yield Heading("verdict", [decides, "versus", "noise"], left=True), lambda row: Cell((row["told"] or "–").replace("_", " "), value=row["told"], tag=row["told"], noise=row["noise"] or "")


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
        return (Heading(heading(f"{timed.ratio}_p50", label_of(versus[0]) if len(versus) == 1 else ""), [*columns, timed.column], below="median time, ± half of its 95 % interval", drawn=whiskers.scale(axis)), lambda row: ratio_cell(row, timed, axis))
    return written(timed)


def ratio_cell(row: Row, timed: Measure, axis: whiskers.Axis) -> Cell:
    reach = pace(row, timed.ratio)
    took = optional(row[timed.column], timed.write) + noise_of(row, timed)
    if reach is None:
        return Cell("–", took)
    if row["verdict"] == "baseline":
        return Cell("1", took, 1.0, whiskers.dot(axis, reach, "baseline", "1"))
    said = f"{times(reach[0])} ({span(reach)})"
    return Cell(said, took, reach[0], whiskers.dot(axis, reach, row["told"], said))


def noise_of(row: Row, timed: Measure) -> str:
    """Half of the interval as a share of the median."""
    value, low, high = (row[column] for column in (timed.column, *timed.interval))
    return "" if None in (value, low, high) or not value else f" ± {(high - low) / 2 / value:.1%}"


def dotted(rows: list[Row], measure: Measure) -> tuple[Heading, object]:
    """A measure without a baseline, on an axis of its own."""
    signed = measure.column == "loss_change"
    known = [own(row, measure) for row in rows if row[measure.column] is not None]
    axis = whiskers.SHARES if measure.column == "accuracy" else whiskers.axis_of(known, 0.0 if signed else None, signed)
    head, text = written(measure)
    if axis is None:
        return head, text

    def cell(row: Row) -> Cell:
        plain = text(row)
        if plain.value is None or (plain.value <= 0 and axis.is_log):
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


def own(row: Row, measure: Measure) -> Reach:
    """A row's value with its interval, which is the value alone where none was measured."""
    value = row[measure.column]
    low, high = (row[end] for end in measure.interval or (measure.column,) * 2)
    return (value, value, value) if low is None or high is None else (value, low, high)


def pace(row: Row, prefix: str) -> Reach | None:
    """A row's time over the baseline's, of the columns that begin with `prefix`."""
    if not prefix:
        return None
    if row["verdict"] == "baseline":
        return 1.0, 1.0, 1.0
    known = tuple(row.get(prefix + column) for column in ("_p50", "_ci_low", "_ci_high"))
    return None if None in known else known


def optional(value: float | None, write) -> str:
    return "–" if value is None else write.format(value) if isinstance(write, str) else write(value)


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def span(reach: Reach) -> str:
    return f"{times(reach[1])}–{times(reach[2])}"
