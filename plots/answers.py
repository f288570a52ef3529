"""What a run answers at each of its sweep points: fastest, smallest, most exact, on the Pareto front; how quiet it was.

A variant is only called the fastest together with all others that are statistically tied with it, and only if its error keeps
a limit, which the question states: ranking.py has both rules. Lossless is what the harness measured as such, not what a name
promises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import polars as pl
from parts import Part, parts
from ranking import SAID, Reach, keeps_limit, limit_of, paces
from prepare import along, is_aa_test, place, with_absent, with_panel
from style import bytes_text, microseconds_text

Row = Mapping  # of cells.csv, with None where nothing was measured


@dataclass(frozen=True)
class Measure:
    kind: str  # time, bytes or error: what the Pareto front and budgets use is the first of each kind
    question: str
    column: str
    write: Callable[[float], str]
    interval: tuple[str, str] | None = None  # columns
    ratio: str = ""  # the beginning of the columns with its ratio to `versus`


# What a policy that has nothing to evict wins by is not its own.
IDLE_POLICY = "its budget is not below the sequence, so it kept all tokens"


def scientific(value: float) -> str:
    return f"{value:.2g}"


MEASURES = [
    Measure("time", "Fastest appends, all together", "append_total_us", microseconds_text, ("append_total_ci_low_us", "append_total_ci_high_us"), "append_total_ratio"),
    Measure("time", "Fastest step", "step_p50_us", microseconds_text, ("step_ci_low_us", "step_ci_high_us"), "ratio"),
    Measure("time", "Fastest prompt", "prefill_p50_us", microseconds_text, ("prefill_ci_low_us", "prefill_ci_high_us"), "ratio"),
    Measure("time", "Fastest cold attention", "cold_attend_p50_us", microseconds_text, ("cold_ci_low_us", "cold_ci_high_us"), "cold_ratio"),
    Measure("time", "Fastest save", "save_p50_us", microseconds_text),
    Measure("time", "Fastest load", "load_p50_us", microseconds_text),
    Measure("time", "Fastest snapshot", "freeze_p50_us", microseconds_text),
    Measure("time", "Fastest restore", "unfreeze_p50_us", microseconds_text),
    Measure("time", "Fastest fork", "fork_p50_us", microseconds_text),
    Measure("bytes", "Smallest", "bytes_sequence", bytes_text),
    Measure("bytes", "Least workspace", "workspace_sequence", bytes_text),
    Measure("error", "Most exact", "err_rel_l2", scientific),
    Measure("error", "Closest to the full cache’s predictions", "kl_mean", scientific, ("kl_mean_ci_low", "kl_mean_ci_high")),
    Measure("error", "Smallest change of the loss", "loss_change", scientific, ("loss_change_ci_low", "loss_change_ci_high")),
]  # fmt: skip
TOLD = 8  # names in a sentence
SEQUENCE_BYTES = ["bytes_payload", "bytes_metadata", "bytes_slack", "bytes_disk", "batch"]


@dataclass(frozen=True)
class Value:
    name: str  # of the variant, for prefill with its arm
    text: str
    interval: str  # "" where none was measured


@dataclass(frozen=True)
class Answer:
    question: str
    best: Value
    same: list[Value]  # statistically tied with the best
    note: str
    columns: list[str]  # of cells.csv, which the answer rests on

    @property
    def others(self) -> str:
        """How `same` relates to the best."""
        return "Statistically tied with it" if self.best.interval else "The same, as printed"

    @property
    def told(self) -> str:
        interval = f" ({self.best.interval})" if self.best.interval else ""
        names = ", ".join(value.name for value in self.same[:TOLD])
        names += f" and {len(self.same) - TOLD} more" if len(self.same) > TOLD else ""
        others = f" ({self.others[0].lower()}{self.others[1:]}: {names})" if names else ""
        return f"{self.best.name}, {self.best.text}{interval}{others}"


@dataclass(frozen=True)
class Front:
    front: list[str]
    perhaps: list[str]  # behind by their medians, but not by their intervals
    of: int
    kinds: list[str]  # what was compared
    columns: list[str]


@dataclass(frozen=True)
class Within:
    """The answers for all budgets from `size` to the next one's."""

    size: float  # bytes of a sequence
    answers: list[tuple[str, Answer | None]]  # (question, of what fits)
    other_best: bool  # than the step before; else only more that are tied with it


@dataclass(frozen=True)
class Quiet:
    lines: list[str]
    noisy: list[tuple[str, list[str]]]  # (what disturbed them, variants)


@dataclass(frozen=True)
class Point:
    panel: str
    place: str
    answers: list[Answer]
    front: Front | None
    within: list[Within]
    quiet: Quiet
    parts: list[Part]


def points(cells: pl.DataFrame) -> list[Point]:
    """The sweep points with a result, panel by panel in the order of the file, the longest of a panel first."""
    numbers = [column for measure in MEASURES for column in (measure.column, *(measure.interval or ()))]
    is_prompt = pl.col("phase") == "prefill"  # all of its caches hold the same
    cells = with_absent(cells, ["bytes_workspace_peak"], ["phase"])
    cells = with_absent(
        cells.with_columns(
            bytes_sequence=pl.when(~is_prompt.fill_null(False)).then(pl.col("bytes_held") / pl.col("batch")),
            workspace_sequence=pl.when(is_prompt).then(pl.col("bytes_workspace_peak") / pl.col("batch")),
        ),
        [*numbers, "bits_per_value", "bytes_payload", "bytes_metadata", "bytes_disk", "kept_tokens", "keeps_all",
         "err_codec_rel_l2", "err_retention_rel_l2", "chunk_tokens", "model_layers", "model_bytes",
         "ratio_p50", "ratio_ci_low", "ratio_ci_high", "steal_share", "others_share"],
        ["arm", "noise", "versus", "verdict"],
    )  # fmt: skip
    rows = with_panel(cells.with_row_index("order")).with_columns(aa_test=is_aa_test()).sort("order")
    axes = along(rows.columns)
    panels: dict[str, dict[tuple, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows.iter_rows(named=True):
        panels[row["panel"]][tuple(row[column] for column in axes)].append(row)
    found = []
    for at in panels.values():
        longest_first = sorted(at.values(), key=lambda rows: [-(rows[0].get(c) or 0) for c in ("seq_len", "distance")])
        found += [point(rows) for rows in longest_first if any(row["status"] == "ok" for row in rows)]
    return [p for p in found if p.answers]


def point(rows: list[Row]) -> Point:
    tested = [row for row in rows if row["status"] == "ok" and not row["aa_test"]]
    answers = [answer for measure in MEASURES for answer in answers_to(tested, measure)]
    first = rows[0]
    panel = first["panel"] or first["experiment"] or ""
    return Point(panel, place(first), answers, pareto(tested), list(within(tested)), quiet(rows), list(parts(tested)))


def name_of(row: Row) -> str:
    arm = (row["arm"] or "").replace("_", " ")
    if arm and row["chunk_tokens"]:
        arm += f" {row['chunk_tokens']:.0f}"
    disk = f" and {bytes_text(row['bytes_disk'])} on disk" if row["bytes_disk"] else ""
    return " · ".join(filter(None, (row["variant"], arm))) + disk


def answers_to(rows: list[Row], measure: Measure) -> Iterator[Answer]:
    """One, or none where there is nothing to compare; of errors also the best of those that lose something."""
    if len(known(rows, measure)) < 2 or (measure.column == "loss_change" and known(rows, MEASURES[-2])):
        return
    if measure.kind == "error" and any(map(is_lossless, rows)):
        lossless, lossy = ([row for row in rows if is_lossless(row) == wanted] for wanted in (True, False))
        note = "no error by codec or retention; what is left is the rounding of f32 arithmetic"
        yield best_of(lossless, measure, "Lossless", note, ties=known(lossless, measure))
        if known(lossy, measure):
            yield best_of(lossy, measure, "Most exact of the others")
    elif measure.kind == "error":
        yield best_of(rows, measure, measure.question)
    else:
        within = [row for row in rows if keeps_limit(row)]
        limit = f" with {SAID[limit_of(rows[0])]}" if len(within) < len(rows) and limit_of(rows[0]) else ""
        first = best_of(within, measure, measure.question + limit)
        if first:
            yield first
        keeping = [row for row in within if not evicts(row)]
        if measure.kind == "time" and first and known(keeping, measure) and first.best.name not in map(name_of, keeping):
            yield best_of(keeping, measure, f"{measure.question} that keeps every token")


def known(rows: list[Row], measure: Measure) -> list[Row]:
    return [row for row in rows if row[measure.column] is not None]


def best_of(rows: list[Row], measure: Measure, question: str = "", note: str = "", ties=None) -> Answer | None:
    ranked = in_order(known(rows, measure), measure)
    if not ranked:
        return None
    best, *others = ranked
    same = [row for row in others if row in ties] if ties else [row for row in others if tied(best, row, measure)]
    columns = [*sources(measure), *(measure.interval or ())]
    if ties:
        columns += ["err_codec_rel_l2", "err_retention_rel_l2"]
    elif measure.kind == "time":
        ratio = ratio_text(best, measure.ratio)
        columns += [measure.ratio + end for end in ("_p50", "_ci_low", "_ci_high") if ratio]
        notes = [ratio, evicts(best) or IDLE_POLICY * (best["keeps_all"] == 1), "" if ends(best, measure) else "no intervals were measured: medians alone decide"]
        note = "; ".join(filter(None, notes))
    return Answer(question, value(best, measure), [value(row, measure) for row in same], note, columns)


def in_order(rows: list[Row], measure: Measure) -> list[Row]:
    ratios = paces(rows, measure.ratio)
    values = [ratio[0] for ratio in ratios] if ratios else [row[measure.column] for row in rows]
    return [row for _, row in sorted(zip(values, rows), key=lambda pair: pair[0])]


def sources(measure: Measure) -> list[str]:
    own = {"bytes_sequence": SEQUENCE_BYTES, "workspace_sequence": ["bytes_workspace_peak", "batch"]}
    return own.get(measure.column, [measure.column])


def value(row: Row, measure: Measure) -> Value:
    interval = " – ".join(map(measure.write, ends(row, measure) or ()))
    text = measure.write(row[measure.column])
    if measure.column == "bytes_sequence" and row["model_bytes"]:
        layers = f"{row['layers']:.0f} layer{'s' * (row['layers'] != 1)} of {row['model_layers']:.0f}"
        text += f" in {layers}, {bytes_text(row['model_bytes'] / row['batch'])} in all"
    return Value(name_of(row), text, interval)


def ends(row: Row, measure: Measure) -> tuple[float, float] | None:
    low, high = (row[column] for column in measure.interval or (measure.column,) * 2)
    return (low, high) if measure.interval and low is not None and high is not None else None


def tied(best: Row, other: Row, measure: Measure) -> bool:
    """Of two in order: by their ratios, else by the intervals of the values, else whether they are equal as printed."""
    reach: list[Reach] | None = paces((best, other), measure.ratio)
    if reach is None:
        found = [ends(row, measure) for row in (best, other)]
        if None in found:
            return measure.write(best[measure.column]) == measure.write(other[measure.column])
        reach = [(0, *interval) for interval in found]
    (_, _, high), (_, low, _) = reach
    return low <= high


def ratio_text(row: Row, prefix: str) -> str:
    ratio, low, high = (row.get(prefix + column) for column in ("_p50", "_ci_low", "_ci_high"))
    if not row["versus"] or None in (ratio, low, high):
        return ""
    verdict = "faster" if high < 1 else "slower" if low > 1 else "ambiguous"
    return f"{ratio:.3g} of the time of {row['versus']} ({low:.3g} – {high:.3g}): {verdict}"


def is_lossless(row: Row) -> bool:
    return (row["err_codec_rel_l2"], row["err_retention_rel_l2"]) == (0, 0) or row["kl_mean"] == 0


def evicts(row: Row) -> str:
    """What it no longer has, or nothing."""
    kept, length, error = row["kept_tokens"], row["seq_len"], row["err_rel_l2"]
    if not row["err_retention_rel_l2"] and (kept is None or length is None or kept >= length):
        return ""
    what = "evicts tokens" if kept is None or length is None else f"keeps {kept:.0f} of {length:.0f} tokens"
    return what if error is None else f"{what}, error {error:.2g}"


def axes(rows: list[Row]) -> dict[str, Measure]:
    """The first measure of each kind that these rows have."""
    by = {m.kind: m for m in reversed(MEASURES) if len(known(rows, m)) > 1}
    return {kind: by[kind] for kind in ("time", "bytes", "error") if kind in by}


def pareto(rows: list[Row]) -> Front | None:
    """Of all kinds measured, where there are two. Bytes are compared to three digits and errors to two, or a variant
    would be on the front for the last bit of a sum."""
    by = axes(rows)
    if len(by) < 2:
        return None
    rows = [row for row in rows if all(row[m.column] is not None for m in by.values())]

    def costs(row: Row) -> list[float]:
        sized = [float(f"{row[by[kind].column]:.{digits}g}") for kind, digits in (("bytes", 3), ("error", 2)) if kind in by]
        return sized[:-1] + [0.0] if "error" in by and is_lossless(row) else sized

    compared = [(row, costs(row)) for row in rows]
    behind = [any(is_behind(ours, theirs, by.get("time")) for theirs in compared) for ours in compared]
    surely = [any(is_behind(ours, theirs, by.get("time"), True) for theirs in compared) for ours in compared]
    front = [name_of(row) for row, is_dominated in zip(rows, behind) if not is_dominated]
    perhaps = [name_of(row) for row, medians, intervals in zip(rows, behind, surely) if medians and not intervals]
    kinds = [m.question.replace("Fastest ", "") + " time" if kind == "time" else kind for kind, m in by.items()]
    return Front(front, perhaps, len(rows), kinds, [c for m in by.values() for c in sources(m)])


def is_behind(ours: tuple[Row, list[float]], theirs: tuple[Row, list[float]], time: Measure | None, certainly=False) -> bool:
    """Is the second at least as good in everything and better in something? Certainly: by the intervals of time."""
    (row, costs), (other, other_costs) = ours, theirs
    if any(b > a for a, b in zip(costs, other_costs)):
        return False
    if time is None or row[time.column] == other[time.column]:
        return other_costs != costs and not (certainly and time)
    first, _ = in_order([other, row], time)
    return first is other and not (certainly and tied(other, row, time))


def within(rows: list[Row]) -> Iterator[Within]:
    by = axes(rows)
    if "bytes" not in by or len(by) < 2:
        return
    size, before, best_before = by["bytes"].column, None, None
    sized = sorted(known(rows, by["bytes"]), key=lambda row: row[size])
    for bytes_, _ in groupby(sized, key=lambda row: row[size]):
        fitting = [row for row in sized if row[size] <= bytes_ and keeps_limit(row)]
        keeping = [row for row in fitting if not evicts(row)]
        exact = [row for row in sized if row[size] <= bytes_]
        questions = [("Fastest", fitting, "time"), ("Fastest that keeps every token", keeping, "time"), ("Most exact", exact, "error")]
        answers = [(question, best_of(among, by[kind])) for question, among, kind in questions if kind in by]
        best = [answer and answer.best.name for _, answer in answers]
        names = best, [answer and len(answer.same) for _, answer in answers]
        if names != before:
            yield Within(bytes_, answers, best != best_before)
        before, best_before = names, best


def quiet(rows: list[Row]) -> Quiet:
    timed = [row for row in rows if row["status"] == "ok" and row["others_share"] is not None]
    lines = []
    if timed:
        others, steal = (max(row[c] or 0 for row in timed) for c in ("others_share", "steal_share"))
        lines.append(f"Other processes took at most {share(others)} of the processors, other virtual machines {share(steal)}.")
    for row in rows:
        if row["aa_test"] and row["ratio_p50"] is not None and row["ratio_ci_low"] is not None:
            lines.append(aa_text(row))
    noisy: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["noise"]:
            noisy[row["noise"]].append(name_of(row) + (", A/A test" if row["aa_test"] else ""))
    if timed and not noisy:
        lines.append("No cell is marked as noisy.")
    return Quiet(lines, list(noisy.items()))


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def aa_text(row: Row) -> str:
    low, high = row["ratio_ci_low"], row["ratio_ci_high"]
    measured = f"{row['ratio_p50']:.3g} ({low:.3g} – {high:.3g}), {name_of(row)} over itself"
    if low <= 1 <= high:
        return f"A/A test passed: {measured}."
    return f"A/A test failed: {measured}; differences of {share(abs(row['ratio_p50'] - 1))} are within the noise here."


def not_run(cells: pl.DataFrame) -> list[tuple[str, str, list[str]]]:
    """(status, reason, variants), the reason with most variants first."""
    groups: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for row in with_absent(cells, [], ["reason"]).filter(pl.col("status").fill_null("") != "ok").iter_rows(named=True):
        groups[(row["status"] or "no status").replace("_", " "), row["reason"] or "no reason recorded"][row["variant"]] = None
    return sorted(((*key, list(names)) for key, names in groups.items()), key=lambda group: -len(group[2]))
