"""Every sentence of `kvlab summary`, of every committed folder: its numbers and its verdict computed again from cells.csv and
columns.json alone, by code of its own (first_screen_test.py: those of reports). A form of sentence that is not known here fails.

LATER lists the forms whose numbers nothing recomputes yet.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from cells_alone import HOME, LIMITS, UNITS, Cells, apart, best_of, each_folder, is_aa, nameable, noisy_of, number, pace, percent, ranged, read, rounds, row_name, shows, told, with_ends

KL, LOSS, OUTPUT = ("kl_mean", "KL ≤ 0.1"), ("loss_change", "loss ≤ +0.1"), ("err_rel_l2", "error ≤ 0.2")
ERRORS = {"quality": KL, "recall": KL, "sensitivity": KL, "stream": LOSS}  # of all other experiments the output's
LATER = ["Length: .*", "The cache takes half of a step: .*", r"Break-even \(.*", "Accepted: .*", "Commands for .*"]
LATER_EXPERIMENTS = ["generate", "task", "speculate", "serve", "replay"]  # whose error or rate is their own


def summary(folder: Path, *options: str) -> str:
    program = os.environ.get("KVLAB_PROGRAM", str(HOME / ".build/release/harness/kvlab"))
    done = subprocess.run([program, "summary", str(folder), *options], capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def unwrapped(block: str) -> list[str]:
    return re.sub(r"\n  +", " ", block.strip("\n")).split("\n")


def aa_line(cells: Cells, decided: str, tests: str):
    compared = [row for row in cells.rows if is_aa(row) and row["ratio_ci_low"] and row["ratio_ci_high"]]
    assert (int(decided), int(tests)) == (sum(map(apart, compared)), len(compared))


def noise_warning(cells: Cells, noisy: str, of: str):
    disturbed, all_timed = noisy_of(cells)
    assert (int(noisy), int(of)) == (len(disturbed), len(all_timed)) and 2 * len(disturbed) > len(all_timed)


def noise_line(cells: Cells, others: str, steal: str, noisy: str, of: str, cell: str | None, why: str | None):
    disturbed, all_timed = noisy_of(cells)
    assert (int(noisy), int(of)) == (len(disturbed), len(all_timed))
    for said, column in ((others, "others_share"), (steal, "steal_share")):
        assert said == percent(max((number(row, column) for row in all_timed if row.get(column)), default=None))
    assert (cell, why) == ((disturbed[0]["cell"], disturbed[0]["noise"]) if disturbed else (None, None))


def ceiling_line(cells: Cells, beyond: str, of: str, most: str):
    shares = [number(row, "bound_share") for row in cells.rows if row.get("bound_share")]
    assert (int(beyond), int(of), most) == (sum(share > 1.02 for share in shares), len(shares), percent(max(shares)))


def left_out_line(cells: Cells, ok: str, of: str, counts: str, cell: str, reason: str):
    assert (int(ok), int(of)) == (sum(row["status"] == "ok" for row in cells.rows), len(cells.rows))
    for count, status in re.findall(r"(\d+) (\w+)", counts):
        assert int(count) == sum(row["status"] == status for row in cells.rows)
    assert any((row["cell"], row["reason"], row["status"] != "ok") == (cell, reason, True) for row in cells.rows)


def untested_line(cells: Cells, untested: str, of: str, name: str):
    found = [row["called"] for row in cells.rows if row.get("verdict") == "untested"]
    assert (int(untested), int(of), len(cells.rows)) == (len(found), len(cells.rows), int(of)) and name.startswith(found[0])


def limit_line(cells: Cells, limit: str, count: str, cell: str):
    """Those at the longest length whose error is known to be beyond the limit."""
    experiment = next(row["experiment"] for row in cells.rows if row["cell"] == cell)
    column, said = ERRORS.get(experiment, OUTPUT)
    beyond = [row["cell"] for point in cells.longest(experiment) for row in point if row["status"] == "ok" and (number(row, column) or 0) > LIMITS[column]]
    assert experiment in LATER_EXPERIMENTS or (limit, int(count), cell) == (said, len(beyond), beyond[0])


def keeps_all_line(cells: Cells, idle: str, of: str, cell: str):
    found = [row["cell"] for row in cells.rows if row.get("keeps_all") == "1"]
    assert (int(idle), int(of), cell) == (len(found), len(cells.rows), found[0])


def served_line(cells: Cells, *said: str):
    rows = [row for row in cells.rows if row.get("tpot_p99_ms") and not number(row, "refused")]
    for text, column, sign in zip(said, ("requests_per_s", "ttft_p99_s", "tpot_p99_ms"), (-1, 1, 1)):
        best = min(rows, key=lambda row: sign * number(row, column))
        where = ("" if best["room"] == "all" else f", room {best['room']}") + ", sharing" * (best["sharing"] == "on")
        assert text == f"{row_name(best)}{where}, {ranged(with_ends(best, column, column + '_ci_low', column + '_ci_high'), '%.3g')}"


def engines_line(cells: Cells, agree: str, pairs: str):
    own = {(row["workload"], row["seq_len"], row["batch"], row["variant"]): row for row in cells.rows if row.get("kl_mean") and not row["peer"]}
    found = [(row, own[key]) for row in cells.rows if row.get("kl_mean") and (key := (row["workload"], row["seq_len"], row["batch"], row["peer_versus"])) in own]
    apart = [a for a, b in found if number(a, "kl_mean_ci_low") > number(b, "kl_mean_ci_high") or number(b, "kl_mean_ci_low") > number(a, "kl_mean_ci_high")]
    assert (int(agree), int(pairs)) == (len(found) - len(apart), len(found))


def calls_line(cells: Cells, count: str, us: str):
    called = [(number(row, "policy_calls"), number(row, "policy_call_us")) for row in cells.rows if row.get("policy_calls")]
    calls = sum(times for times, _ in called)
    assert int(count) == calls and abs(int(us) - sum(times * mean for times, mean in called) / calls) <= 0.5


SENTENCES = {
    r"Functions in Python: (\d+) calls of (\d+) us on average \[policy_call_us\]; no time of a cache includes them": calls_line,
    r"Engines: the KL divergence of (\d+) of (\d+) engines' caches agrees with .*": engines_line,
    r"Most requests: (.+) per second\. Lowest p99 time to the first token: (.+) s\. Lowest p99 time per token: (.+) ms\.": served_line,
    r"Untested: (\d+) of (\d+) cells, such as (.+)": untested_line,
    r"Limit: only caches of (.+?) can be the fastest .*?; (\d+) at the longest length are left out, such as (.+?): .*": limit_line,
    r"A/A test: (\d+) of (\d+) comparisons of the baseline with itself found a difference \(5 % expected\)": aa_line,
    r"(\d+) of (\d+) timed cells are noisy, so these times say little\. Close other programs, .* measure at another time\.": noise_warning,
    r"Noise: other processes took at most (\d+ %|-) of the processors, the hypervisor (\d+ %|-); (\d+) of (\d+) timed cells are noisy(?:, such as (.+?): (.+))?": noise_line,
    r"Ceiling: (\d+) of (\d+) cells ran faster than the measured hardware limit \(up to (\d+ %)\), .*": ceiling_line,
    r"(\d+) of (\d+) cells measured((?:, \d+ \w+)+), such as (.+?): (.*)": left_out_line,
    r"Warning: (\d+) of (\d+) cells keep every token because their budget .* \[keeps all\], such as (.+)": keeps_all_line,
    r"\* other engines \(sweep.peers\) report .*": lambda cells: any(row.get("peer_bytes_reported") for row in cells.rows) or pytest.fail("none"),
}


def check_sentence(cells: Cells, sentence: str) -> bool:
    for form, check in SENTENCES.items():
        if found := re.fullmatch(form, sentence):
            check(cells, *found.groups())
            return True
    return any(re.fullmatch(form, sentence) for form in LATER)


def split_answers(block: str) -> list[tuple[str, ...]]:
    """(point, question, variant, error, value) of each line, by the columns of the head."""
    head, *lines = block.strip("\n").split("\n")
    found = re.fullmatch(r"  (at th.*?th) +(is) +(varia.*?)  +(error)  +(value)", head)
    assert found, head
    at = [found.start(group) for group in (1, 2, 3)]
    split = []
    for line in lines:
        variant, error = re.fullmatch(r"(.*?)  +(\S+(?: \S+)*)", line[at[2] : found.end(4)].rstrip()).groups()
        split.append((line[at[0] : at[1]].strip(), line[at[1] : at[2]].strip(), variant.strip(), error, line[found.end(4) :].strip()))
    return split


def check_answers(cells: Cells, block: str):
    groups: list[list[tuple[str, ...]]] = []
    for line in split_answers(block):
        groups += [[]] if line[0] else []
        groups[-1].append(line)
    for experiment in dict.fromkeys(row["experiment"] for row in cells.rows):
        shown = [group for group in groups if re.match(rf"{experiment}\W", group[0][0]) or experiment.startswith(group[0][0].partition("…")[0])]
        if experiment in LATER_EXPERIMENTS or not shown:
            assert experiment in LATER_EXPERIMENTS or not any(list(answers_at(experiment, point)) for point in cells.longest(experiment))
            continue
        points = cells.longest(experiment)
        assert len(shown) == (1 if "(1 " in shown[0][0][0] else len(points))
        for group, point in zip(shown, points):
            expected = list(answers_at(experiment, point))
            assert len(group) == len(expected), (group, expected)
            for (_, *said), answer in zip(group, expected):
                check_answer(said, *answer)


def check_answer(said: list[str], asked: str, name: str | None, as_good: int, text: str):
    question, variant, error, value = said
    assert question == asked
    if name is None:
        assert (variant, error) == ("-", "-") and value.startswith("none: the baseline ")
        return
    shown, others = re.fullmatch(r"(.*?)(?: \+ (\d+))?", variant).groups()
    assert shows(shown, name) and int(others or 0) == as_good, (variant, name, as_good)
    assert same_amount(value, text), (value, text)


def same_amount(said: str, text: str) -> bool:
    """Equal, or a size in units that rounds the bytes."""
    if said == text:
        return True
    size, exact = re.fullmatch(rf"([\d.]+) ({'|'.join(UNITS)}) workspace", said), re.fullmatch(r"(\d+) workspace", text)
    return bool(size and exact) and rounds(size[1], UNITS[size[2]], int(exact[1]))


TIMES = ["append_total_us", "step_p50_us", "prefill_p50_us", "cold_attend_p50_us", "fork_p50_us"]
PACES = {"append_total_ratio": "all appends", "ratio": "time", "cold_ratio": "cold"}


def has_pace(row: dict, ratio: str) -> bool:
    return ratio != "none" and (row.get("verdict") == "baseline" or bool(row.get(f"{ratio}_p50") and row.get(f"{ratio}_ci_low")))


def in_time(us: float) -> str:
    return next(f"{us / size:.3g} {unit}" for size, unit in ((1e6, "s"), (1e3, "ms"), (1, "µs")) if us >= size or size == 1)


def answers_at(experiment: str, point: list[dict]):
    """(question, name, as good, text) of the fastest, the smallest and the most exact."""
    ok = nameable(point)
    column, limit = ERRORS.get(experiment, OUTPUT)
    prompt = point[0].get("phase") == "prefill"
    kept = [row for row in ok if (number(row, column) or 0) <= LIMITS[column]]
    suffix = f" of {limit}" if len(kept) < len(ok) else ""
    if any(row["judged"] == "unreliable" for row in ok):
        yield "fastest", None, 0, ""
    elif column_of_time := next((name for name in TIMES if any(row.get(name) for row in kept)), None):
        timed_rows = [row for row in kept if row.get(column_of_time)]
        ratio = {"append_total_us": "append_total_ratio", "cold_attend_p50_us": "cold_ratio", "fork_p50_us": "none"}.get(column_of_time, "ratio")
        one = sum(row.get("verdict") == "baseline" for row in timed_rows) <= 1 and len({row["versus"] for row in timed_rows if row.get("versus")}) <= 1
        by_pace = one and all(has_pace(row, ratio) for row in timed_rows)
        stem = column_of_time.replace("_p50_us", "").replace("_us", "").replace("_attend", "")
        best = best_of(timed_rows, (lambda row: pace(row, ratio)) if by_pace else lambda row: with_ends(row, column_of_time, f"{stem}_ci_low_us", f"{stem}_ci_high_us"))
        text = "the baseline itself" if best[0].get("verdict") == "baseline" else in_time(number(best[0], column_of_time))
        if best[0].get("verdict") != "baseline" and has_pace(best[0], ratio):
            text = f"{PACES[ratio]} / baseline {ranged(pace(best[0], ratio), '%.2f')}"
        yield f"fastest{suffix}", row_name(best[0]), len(best[1]), text
    held = "bytes_workspace_peak" if prompt else "held_bytes_per_token"
    best = best_of(kept, lambda row: with_ends(row, held))
    if best[0]:
        layers, all_layers = number(best[0], "layers"), number(best[0], "model_layers")
        part = f", {layers:.0f} of {all_layers:.0f} layers" if layers and all_layers and layers < all_layers else ""
        text = f"{number(best[0], held):.0f} workspace" if prompt else f"{number(best[0], held):.0f} bytes/token{part}"
        yield f"smallest{suffix}", row_name(best[0]), len(best[1]), text
    ends = ("", "") if column == "err_rel_l2" else (f"{column}_ci_low", f"{column}_ci_high")
    best = best_of(ok, lambda row: with_ends(row, column, *ends))
    if best[0]:
        reach = with_ends(best[0], column, *ends)
        text = {"err_rel_l2": f"error {reach[0]:.1e}", "kl_mean": f"KL {ranged(reach, '%.2g')}", "loss_change": f"{ranged(reach, '%+.2g')} nats"}[column]
        yield "most exact", row_name(best[0]), len(best[1]), text


RANGES = {"time / baseline": ("ratio_p50", "%.2f"), "all appends / baseline": ("append_total_ratio_p50", "%.2f"), "cold / baseline": ("cold_ratio_p50", "%.2f"), "error, rel. L2": ("err_rel_l2", "%.1e"),
          "loss change": ("loss_change", "%+.2g")}  # fmt: skip


def check_ranges(cells: Cells, experiment: str, table: str):
    head, *lines = table.split("\n")
    names = re.split(r"  +", head.strip())
    assert names[:2] == ["variant", "measured"] and all(cells.headings[RANGES[name][0]] == name for name in names[2:]), names
    for line in lines:
        if re.fullmatch(r"  … and \d+ more", line):
            continue
        *variant, measured = re.split(r"  +", line.strip())[: -len(names[2:]) or None]
        own = [row for row in cells.rows if row["experiment"] == experiment and shows("  ".join(variant), row_name(row))]
        assert own and measured == f"{sum(row['status'] == 'ok' for row in own)} of {len(own)}", line
        for name, said in zip(names[2:], re.split(r"  +", line.strip())[-len(names[2:]) :]):
            values = [number(row, RANGES[name][0]) for row in own if row.get(RANGES[name][0])]
            ends = dict.fromkeys(RANGES[name][1] % end for end in (min(values), max(values))) if values else ["-"]
            assert said == "–".join(ends), (line, name)


@each_folder
def test_the_summary_says_what_the_cells_say(folder):
    cells = read(folder)
    for block in summary(folder).strip("\n").split("\n\n"):
        block = re.sub(r"\n\d+ sweep points have a table each: kvlab\s+summary\s+\S+\s+--table\s+full$", "", block)  # counted below
        if block.startswith("  at th"):
            check_answers(cells, block)
        elif ranges := re.match(r"(\w+): ranges over a variant's cells\n", block):
            check_ranges(cells, ranges[1], block[ranges.end() :])
        elif "\n  variant " in block:
            check_point(cells, block)
        else:
            assert [line for line in unwrapped(block) if not check_sentence(cells, line)] == []


def check_point(cells: Cells, block: str) -> None:
    """The verdicts of a sweep point's table, word for word."""
    words = re.findall(r"\) (faster|slower|ambiguous|unreliable)(?:, noisy)?(?=\s|$)", block)
    name = re.split(r"\n  variant ", block)[0]
    tokens = int(re.search(r"(\d+)\s+tokens", name)[1])
    there = [p for p in cells.points.values() if p[0]["experiment"] == name.partition(",")[0] and number(p[0], "seq_len") == tokens]
    allowed = [[told(row) for row in point if told(row)] for point in there]
    assert not words or words in allowed, (name, words, allowed)


@each_folder
def test_every_sweep_point_has_a_table_whose_verdicts_are_allowed(folder):
    cells, points = read(folder), 0
    for block in summary(folder, "--table", "full").strip("\n").split("\n\n"):
        if "\n  variant " in block:
            check_point(cells, block)
            points += 1
    pointer = re.search(r"(\d+) sweep points, each with a table", summary(folder))
    assert pointer is None or int(pointer[1]) == points
    assert points or all(row["status"] != "ok" for row in cells.rows)
