"""The one rule by which variants are ranked: which may be named at all, which come first, which are statistically tied, and
which lie on the Pareto front.

The sentence and the table of the first screen, charts, and the site use it. Two times are compared by their ratios to the
baseline's, whose intervals decide the verdicts, so that nothing is called faster than the baseline and tied with it. Only where a
row has no ratio, or there are several baselines, do the intervals of the times themselves decide. Lossless is what the harness measured as such, not what a name
promises. An `oracle`, which no engine can deploy, is drawn and never named. Answers to questions have verdicts over all questions of a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from known import heading
from style import bytes_text, microseconds_text

Row = Mapping  # of cells.csv, with None where nothing was measured
Reach = tuple[float, float, float]  # value, and the ends of its interval
UNRELIABLE = "unreliable"  # the verdict on times compared with a baseline that is noisy or differs from itself

# Largest errors with which a variant may be called the fastest or the smallest; the first that a row has decides.
LIMITS = {"err_rel_l2": 0.2, "kl_mean": 0.1, "loss_change": 0.1}
SAID = {"err_rel_l2": "an error of at most 0.2", "kl_mean": "a KL divergence of at most 0.1 nats", "loss_change": "a loss of at most 0.1 nats more"}


@dataclass(frozen=True)
class Measure:
    kind: str  # time, bytes, error or rate; the front compares the first of each kind; served: shown and not ranked
    column: str
    is_best: str  # the verb of a sentence about the best
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


def of_time(column: str, stem: str, is_best: str = "is fastest", ratio: str = "") -> Measure:
    ends = (f"{stem}_ci_low_us", f"{stem}_ci_high_us")
    return Measure("time", column, is_best, microseconds_text, ends, ratio)


MEASURES = [
    of_time("append_total_us", "append_total", ratio="append_total_ratio"),
    of_time("step_p50_us", "step", ratio="ratio"),
    of_time("prefill_p50_us", "prefill", ratio="ratio"),
    of_time("cold_attend_p50_us", "cold", ratio="cold_ratio"),
    of_time("fork_p50_us", "fork", "forks fastest"),
    Measure("rate", "goodput_per_s", "serves most", "{:.3g}".format, ("goodput_per_s_ci_low", "goodput_per_s_ci_high"), unit="good requests a second"),
    Measure("rate", "requests_per_s", "serves most", "{:.3g}".format, ("requests_per_s_ci_low", "requests_per_s_ci_high"), unit="requests per second"),
    Measure("rate", "accuracy", "answers most", "{:.0%}".format, ("accuracy_ci_low", "accuracy_ci_high"), unit="right answers"),
    Measure("served", "served_tokens_per_s", "generates most", rounded, ("served_tokens_per_s_ci_low", "served_tokens_per_s_ci_high")),
    Measure("served", "ttft_p99_s", "has the shortest time to the first token, p99", "{:.3g}".format, ("ttft_p99_s_ci_low", "ttft_p99_s_ci_high"), unit="s"),
    Measure("served", "tpot_p99_ms", "has the shortest time per further token, p99", "{:.3g}".format, ("tpot_p99_ms_ci_low", "tpot_p99_ms_ci_high"), unit="ms"),
    Measure("bytes", "bytes_per_token", "is smallest", bytes_text, derived_from="held_bytes_per_token"),
    Measure("bytes", "workspace_sequence", "needs least workspace", bytes_text, derived_from="bytes_workspace_peak"),
    Measure("bytes", "held_peak_bytes", "holds least at its peak", bytes_text),
    Measure("error", "err_rel_l2", "has the least error", scientific, ("err_ci_low", "err_ci_high")),
    Measure("error", "kl_mean", "loses least", scientific, ("kl_mean_ci_low", "kl_mean_ci_high"), unit="nats of KL divergence"),
    Measure("error", "loss_change", "loses least", "{:+.2g}".format, ("loss_change_ci_low", "loss_change_ci_high"), unit="nats of loss"),
]  # fmt: skip
STEP = next(measure for measure in MEASURES if measure.column == "step_p50_us")
NUMBERS = [
    *(column for measure in MEASURES for column in (measure.column, *(measure.interval or ()))),
    *(f"{prefix}{end}" for prefix in ("append_total_ratio", "ratio", "cold_ratio") for end in ("_p50", "_ci_low", "_ci_high")),
    "err_codec_rel_l2", "err_retention_rel_l2", "kept_tokens", "keeps_all", "bits_per_value", "held_bytes_per_token",
    "pooled_questions", "pooled_right", "pooled_full_right",
    "encoded_share", "dropped_share", "stated_context", "context_encoded_share", "context_dropped_share",
]  # fmt: skip
TEXTS = ["verdict", "versus", "noise", "oracle"]  # with NUMBERS: what a row needs for a ranking


@dataclass(frozen=True)
class Ranking:
    measure: Measure
    rows: list[Row]  # that keep the limit of error, the best first
    reaches: list[Reach]  # of each: what decides; less is better
    limit: str  # what the rows keep; "" where none was measured

    @property
    def best(self) -> Row:
        return self.rows[0]

    @property
    def tied(self) -> list[Row]:
        """The others whose interval meets the best's; without intervals those that are equal as printed."""
        best = self.reaches[0]
        return [row for row, reach in zip(self.rows[1:], self.reaches[1:]) if meets(best, reach, self.measure)]


def ranking(rows: Iterable[Row], measure: Measure, limited: bool = True) -> Ranking | None:
    """The rows that were measured, in order; `limited`: those alone whose error keeps the limit. None where there is none."""
    known = [row for row in rows if row[measure.column] is not None]
    kept = [row for row in known if not limited or keeps_limit(row)]
    if not kept:
        return None
    order = sorted(zip(reaches(kept, measure), kept), key=lambda pair: pair[0][0])
    limit = next((column for row in known if (column := limit_of(row))), None)
    return Ranking(measure, [row for _, row in order], [reach for reach, _ in order], SAID[limit] if limited and limit else "")


def named(rows: Iterable[Row]) -> list[Row]:
    """Those that an answer may name: all but oracles and what was not put to the test."""
    return [row for row in rows if not row.get("oracle") and row.get("verdict") != "untested"]


def about_answers(rows: Iterable[Row], called: Callable[[Row], str]) -> str:
    """What verdicts over all questions of a configuration say of its caches, of which `rows` have one each."""
    judged = [row for row in named(rows) if row["verdict"]]
    if not judged:
        return "the full f32 cache itself answers too few questions"
    if any(row["pooled_questions"] is None for row in judged):
        return "an earlier version judged each cell alone; ./kvlab check-results --add-stages judges all questions together"
    worse = [row for row in judged if row["verdict"] == "worse"]
    well = [row for row in judged if row["verdict"] in ("baseline", "identical", "better", "not_found_worse")]
    said = [f"{len(worse)} of {len(judged)} caches answer worse than the full f32 cache"] if worse else []
    if well:
        best = min(well, key=lambda row: (row["held_bytes_per_token"], row["variant"]))
        said.append(f"{called(best)} is the smallest found to lose at most 10 points: {bytes_text(best['held_bytes_per_token'])} a token, "
                    f"{best['pooled_right']:.0f} of {best['pooled_questions']:.0f} right, full cache {best['pooled_full_right']:.0f}")  # fmt: skip
    if unclear := len(judged) - len(worse) - len(well):
        said.append(f"too few questions to say {f'of {unclear}' if said else f'whether any of {unclear} caches answers worse than the full f32 cache'}")
    return "; ".join(said)


def limit_of(row: Row) -> str | None:
    """The column of the error that has a limit."""
    return next((column for column in LIMITS if row.get(column) is not None), None)


def keeps_limit(row: Row) -> bool:
    """Also where no error was measured, but not where the text was too short to put the cache to the test."""
    if row.get("verdict") == "untested":
        return False
    column = limit_of(row)
    return column is None or row[column] <= LIMITS[column]


def reaches(rows: list[Row], measure: Measure) -> list[Reach]:
    """What decides of each row: its ratio where all have one to the same baseline, else its value; of unreliable times nothing does."""
    paces = [pace(row, measure.ratio) for row in rows]
    if measure.kind == "time" and not comparable(rows):
        return [(row[measure.column], -inf, inf) for row in rows]
    if None not in paces and has_one_baseline(rows):
        return paces
    return [negative(own(row, measure)) if measure.kind == "rate" else own(row, measure) for row in rows]


def comparable(rows: list[Row]) -> bool:
    return all(row["verdict"] != UNRELIABLE for row in rows)


def has_one_baseline(rows: list[Row]) -> bool:
    """Sweeps with baselines of their own may share a sweep point; their ratios cannot be compared."""
    return sum(row["verdict"] == "baseline" for row in rows) <= 1 and len({row["versus"] for row in rows if row["versus"]}) <= 1


def own(row: Row, measure: Measure) -> Reach:
    """A row's value with its interval, which is the value alone where none was measured."""
    value = row[measure.column]
    low, high = (row[end] for end in measure.interval or (measure.column,) * 2)
    return (value, value, value) if low is None or high is None else (value, low, high)


def negative(reach: Reach) -> Reach:
    value, low, high = reach
    return -value, -high, -low


def pace(row: Row, prefix: str) -> Reach | None:
    """A row's time over the baseline's, of the columns that begin with `prefix`."""
    if not prefix:
        return None
    if row["verdict"] == "baseline":
        return 1.0, 1.0, 1.0
    known = tuple(row.get(prefix + column) for column in ("_p50", "_ci_low", "_ci_high"))
    return None if None in known else known


def told(row: Row, prefix: str) -> str:
    """The verdict on a row's pace; without one, that of the file, which is on losses."""
    reach = pace(row, prefix)
    if reach is None or row["verdict"] in ("baseline", UNRELIABLE):
        return row["verdict"] or ""
    return "faster" if reach[2] < 1 else "slower" if reach[1] > 1 else "ambiguous"


def meets(best: Reach, other: Reach, measure: Measure) -> bool:
    if best[1] == best[2] and other[1] == other[2] and 1.0 not in (best[0], other[0]):
        return measure.write(abs(best[0])) == measure.write(abs(other[0]))
    return other[1] <= best[2]


def is_lossless(row: Row) -> bool:
    return (row["err_codec_rel_l2"], row["err_retention_rel_l2"]) == (0, 0) or row["kl_mean"] == 0


def untested_text(row: Row) -> str:
    """As the terminal says it (harness/measure/exposure.cc); "" for a row that was put to the test."""
    if row["verdict"] != "untested":
        return ""
    encoded = row["encoded_share"] < 0.9 * row["context_encoded_share"]
    here, there = (row[f"{at}{'encoded' if encoded else 'dropped'}_share"] for at in ("", "context_"))
    what = "encoded" if encoded else "dropped or not read"
    return f"not put to the test at {row['seq_len']:,.0f} tokens: {here:.0%} of its rows were {what}, at {row['stated_context']:,.0f} tokens {there:.0%}".replace("%", " %")


def evicts(row: Row) -> bool:
    """As the harness says; folders of earlier versions say it by what was lost, or kept at the end: a run of steps keeps less than its
    last length before them."""
    kept, length = row["kept_tokens"], row["seq_len"]
    if row["keeps_all"] is not None:
        return row["keeps_all"] == 0
    if row["err_retention_rel_l2"] is not None:
        return row["err_retention_rel_l2"] > 0
    return kept is not None and length is not None and kept < length


def measured_by(rows: list[Row]) -> dict[str, Measure]:
    """The first measure of each kind that at least two of these rows have."""
    by = {m.kind: m for m in reversed(MEASURES) if sum(row[m.column] is not None for row in rows) > 1}
    return {kind: by[kind] for kind in ("time", "rate", "error", "bytes") if kind in by}


def front(rows: list[Row]) -> list[str]:
    """Of each row whether it is on the front of all that was measured ("front"), behind by its median alone ("perhaps"), or "".
    Bytes are compared to three digits and errors to two, or a variant would be on the front for the last bit of a sum."""
    by = measured_by(rows)
    compared = [at for at, row in enumerate(rows) if not row.get("oracle") and all(row[m.column] is not None for m in by.values())]
    found = [""] * len(rows)
    if len(by) < 2 or not compared:
        return found
    fast = by.get("time") or by.get("rate")
    pace_of = dict(zip(compared, reaches([rows[at] for at in compared], fast))) if fast else {}
    costs = {at: costs_of(rows[at], by) for at in compared}
    for at in compared:
        others = [other for other in compared if other != at and all(map(float.__le__, costs[other], costs[at]))]
        better = [other for other in others if costs[other] != costs[at]]
        if not fast:
            found[at] = "" if better else "front"
        elif not any(pace_of[other][0] < pace_of[at][0] or (other in better and pace_of[other][0] == pace_of[at][0]) for other in others):
            found[at] = "front"
        elif not any(pace_of[other][0] < pace_of[at][0] and not meets(pace_of[other], pace_of[at], fast) for other in others):
            found[at] = "perhaps"
    return found


def costs_of(row: Row, by: Mapping[str, Measure]) -> list[float]:
    sized = [float(f"{row[by[kind].column]:.{digits}g}") for kind, digits in (("bytes", 3), ("error", 2)) if kind in by]
    return [*sized[:-1], 0.0] if "error" in by and is_lossless(row) else sized
