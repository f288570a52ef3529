"""Every sentence, verdict and heading of a report's first screen, of every committed folder, computed again from cells.csv and
columns.json alone, by code of its own. A form of sentence that is not known here fails.
"""

from __future__ import annotations

import re
import sys

import polars as pl
import pytest
from cells_alone import HOME, NAME, NUMBER, SAID, UNITS, Cells, apart, each_folder, evicts, is_aa, keeps, lossless, nameable, noisy_of, number, pace, read, rounds, times, told, with_ends

sys.path.insert(0, str(HOME / "plots"))
from data import load_runs
from decision import points
from trust import trust_of

VERBS = {"is fastest": ["append_total_us", "step_p50_us", "prefill_p50_us", "cold_attend_p50_us"], "forks fastest": ["fork_p50_us"],
         "has the least relative error": ["err_rel_l2"], "loses least": ["kl_mean", "loss_change"], "is smallest": ["held_bytes_per_token"],
         "needs the least workspace": ["bytes_workspace_peak"], "has the smallest peak": ["held_peak_bytes"], "answers most": ["accuracy"],
         "serves the most": ["goodput_per_s"], r"has the shortest time (?:to the first token|per token after the first), p99": []}  # fmt: skip
LATER = ["serves the most", "has the shortest time"]  # verbs and forms whose numbers nothing recomputes yet
LATER_FORMS = r"\d+ of \d+ caches answer worse .*|.* is the smallest that loses at most 10 points.*|there were too few questions to .*|the full f32 cache itself .*|an earlier version judged .*"
RATIOS = {"append_total_us": "append_total_ratio", "step_p50_us": "ratio", "prefill_p50_us": "ratio", "cold_attend_p50_us": "cold_ratio"}
ENDS = {"append_total_us": "append_total_ci_{}_us", "step_p50_us": "step_ci_{}_us", "prefill_p50_us": "prefill_ci_{}_us", "cold_attend_p50_us": "cold_ci_{}_us",
        "fork_p50_us": "fork_ci_{}_us", "err_rel_l2": "err_ci_{}", "kl_mean": "kl_mean_ci_{}", "loss_change": "loss_change_ci_{}"}  # fmt: skip
SCALES = {"": 1, "nats of KL divergence": 1, "nats of loss": 1, "ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6, **UNITS}
SIZED = rf"([-+\d.,]+(?:e-\d+)?) ?({'|'.join(filter(None, SCALES))})?"
GROUPS = {"of the lossy caches": lambda row: not lossless(row),
          "of those with at most 5 bits per value": lambda row: row.get("bits_per_value") and number(row, "bits_per_value") <= 5 and not evicts(row)}  # fmt: skip


class Said:
    """What a sentence with this verb compares: `reach(row)` is the value with its interval, the less the better."""

    def __init__(self, rows: list[dict], verb: str, group):
        self.column = next(column for column in VERBS[verb] if sum(bool(row.get(column)) for row in rows) > 1)
        self.ratio = RATIOS.get(self.column)
        self.labels = {row["variant"]: row.get("label") or row["variant"] for row in rows}
        self.rows = [row for row in rows if row.get(self.column) and group(row)]
        one = sum(row.get("verdict") == "baseline" for row in self.rows) <= 1 and len({row.get("versus") for row in self.rows if row.get("versus")}) <= 1
        self.by_pace = bool(self.ratio) and one and all(self.pace(row) for row in self.rows)

    def pace(self, row: dict) -> tuple | None:
        return pace(row, self.ratio) if self.ratio else None

    def own(self, row: dict) -> tuple:
        return with_ends(row, self.column, *(ENDS.get(self.column, "").format(end) for end in ("low", "high")))

    def reach(self, row: dict) -> tuple:
        return self.pace(row) if self.by_pace else self.own(row)

    def winner(self, named: str, rows: list[dict]) -> dict:
        least = min(self.reach(row)[0] for row in rows)
        return next((row for row in rows if row["called"] == named and self.reach(row)[0] == least), None) or pytest.fail(f"{named} is not the least")


def check_clauses(rows: list[dict], of: Said, named: str, clauses: list[str]):
    """The amount of the named one, and what is said after it, a clause each; one that is not known fails."""
    best = of.winner(named, of.rows)
    amount, _, kept = re.fullmatch(r"(.*?)( \(its budget covers .*\))?(, but .*)?", clauses[0]).groups()
    check_amount(best, of, amount)
    assert kept in (None, ", but evicts tokens", f", but keeps {number(best, 'kept_tokens') or 0:,.0f} of {number(best, 'seq_len'):,.0f} tokens")
    assert bool(kept) == (evicts(best) and of.column not in ("err_rel_l2", "kl_mean", "loss_change", "held_bytes_per_token")), (named, kept)
    ties = False
    for clause in clauses[1:]:
        if keeping := re.fullmatch(f"{NAME} .* of those that keep every token: (.*)", clause):
            check_amount(of.winner(keeping[1], [row for row in of.rows if not evicts(row)]), of, keeping[2])
        elif slowest := re.fullmatch(rf"{NAME} is slowest: (.*)", clause):
            row = max((row for row in rows if of.pace(row)), key=lambda row: of.pace(row)[0])
            assert slowest[1] == row["called"]
            check_amount(row, of, slowest[2])
        else:
            check_ties(best, of, clause)
            ties = True
    tied = [row for row in of.rows if row is not best and of.reach(row)[1] <= of.reach(best)[2]]
    assert ties or not tied or all(of.reach(row)[1] == of.reach(row)[2] for row in of.rows), (named, [row["called"] for row in tied])


def check_ties(best: dict, of: Said, clause: str):
    """The names of those whose interval reaches the best's; without intervals those equal to two digits."""
    found = re.fullmatch(r"(.*?) (?:is|are) (statistically tied|equal, as printed)", clause)
    assert found, f"a clause that is not known: {clause}"
    same = found[2] != "statistically tied"
    tied = [row["called"] for row in of.rows if row is not best and (of.reach(row)[1] <= of.reach(best)[2] * (1.06 if same else 1))]
    names, more = re.findall(NAME, found[1]), re.search(r"(\d+) more", found[1])
    count = len(names) + int(more[1] if more else 0)
    assert set(names) <= set(tied) and (count == len(tied) or same), (clause, tied)
    assert names or found[1] == "no other"


def check_amount(row: dict, of: Said, said: str):
    if found := re.fullmatch(rf"it takes {NUMBER} times as long as {NAME} \({NUMBER}–{NUMBER}\)", said):
        value, *ends = map(times, of.pace(row))
        assert list(found.groups()) == [value, of.labels.get(row["versus"], row["versus"]), *ends], said
    elif said.endswith(", the baseline itself"):
        assert row["verdict"] == "baseline"
    else:
        found = re.fullmatch(rf"{SIZED}(?: \({SIZED}(?:–| to ){SIZED}\))?", said)
        assert found, said
        for value, unit, true in zip(found.groups()[::2], found.groups()[1::2], of.own(row)):
            assert value is None or rounds(value, SCALES[unit or ""], true), (said, row["cell"])


def check_report_sentence(rows: list[dict], sentence: str):
    """`rows`: of the sweep point, without A/A tests and what could not run."""
    said = re.sub("^(?:At|With) .*?, (?=`|no |there |the full|an earlier|[0-9]+ of)", "", sentence.removesuffix("."))
    if re.fullmatch(LATER_FORMS, said):
        return
    if re.match(r"no variant is called faster or slower: ", said):
        assert any(row["judged"] == "unreliable" for row in rows)
        return
    if none := re.fullmatch(r"no variant has (.*)", said):
        assert none[1] in SAID.values() and not any(keeps(row) for row in rows)
        return
    if said == "no variant was put to the test":
        assert not any(map(keeps, rows))
        return
    found = re.fullmatch(rf"{NAME} ({'|'.join(VERBS)})( of (?:those|the lossy) .*?)?: (.*)", said)
    assert found, f"a form that is not known: {sentence}"
    named, verb, of, rest = found.groups()
    if verb.startswith(tuple(LATER)):
        return
    assert verb != "is fastest" or all(row["judged"] != "unreliable" for row in rows)
    group = GROUPS.get((of or "").strip()) or keeps
    assert group is not keeps or not of or of.removeprefix(" of those with ") in SAID.values(), of
    check_clauses(rows, Said(rows, verb, group), named, rest.split("; "))


DERIVED = {"bytes_per_token": "held_bytes_per_token", "workspace_sequence": "bytes_workspace_peak"}


def check_headings(cells: Cells, headings: list):
    """One heading for one column, and no column with another's; that of a ratio names its baseline."""
    assert len(set(cells.headings.values())) == len(cells.headings)
    for heading in headings:
        column = DERIVED.get(heading.columns[0], heading.columns[0])
        declared = cells.headings.get(column)
        if declared is None or heading.words == "verdict":
            continue
        before, baseline, after = declared.partition("baseline")
        assert heading.words.startswith(before) and (baseline or heading.words == declared), (heading.words, declared)
        assert not baseline or heading.words[len(before) :] in {"baseline", *(cells.labels.get(row.get("versus"), row.get("versus")) for row in cells.rows)}


@each_folder
def test_the_first_screen_says_what_the_cells_say(folder):
    cells = read(folder)
    by_cell = {row["cell"]: (row, point) for point in cells.points.values() for row in point}
    runs = load_runs([folder])
    drawn = pl.concat([run.cells for run in runs], how="diagonal_relaxed").with_row_index("cell_index")
    trust, tests = trust_of(runs), [row for row in cells.rows if is_aa(row) and row.get("ratio_ci_low") and row.get("ratio_ci_high")]
    assert (trust.tests, trust.apart) == (len(tests), sum(map(apart, tests)))
    assert (trust.noisy, trust.timed) == tuple(map(len, noisy_of(cells)))
    for point in points(drawn, runs):
        own, there = by_cell[drawn["cell"][point.lines[0].cell]]
        rows = nameable(there)
        for sentence in point.sentences:
            check_report_sentence(rows, sentence)
        check_headings(cells, point.headings)
        at = [nth for nth, heading in enumerate(point.headings) if heading.words == "verdict"]
        for line in point.lines if at else []:
            row, _ = by_cell[drawn["cell"][line.cell]]
            if line.cells and row.get("ratio_p50"):
                assert line.cells[at[0] - 1].text == (told(row) or row["verdict"]), (row["cell"], line.cells[at[0] - 1].text)
