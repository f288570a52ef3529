"""Questions about a text as users meet them, with the model that comes with kvlab, which answers none but copies a part of a record."""

import math
import random
import shutil
from collections import defaultdict
from fractions import Fraction

import pytest
from program import HOME, assert_refused, kvlab, results_of, run, succeeded, table, write_table

FOLDER = HOME / "configs/models/kvlab-recall-1m"
CONFIG = f"""
title = "tiny"
experiment = "task"
[workload]
model = "{FOLDER}"
text = "{FOLDER}/stream.txt"
[task]
task = "copy"
seq_len = 640
batch = 6
depth = [10, 80]
variants = ["contiguous", "paged", "contiguous/q8_0", "paged/ring(window={{budget}})", "paged/f16/snapkv(budget={{budget}})"]
budget = 64
"""
results = results_of(CONFIG, cwd="/")


def by_cache_and_depth(folder):
    return {(row["variant"], row["depth"]): row for row in table(folder / "cells.csv")}


def test_each_cache_has_a_cell_at_each_depth(results):
    cells = by_cache_and_depth(results)
    assert len(cells) == 10 and {depth for _, depth in cells} == {"10", "80"}
    for row in cells.values():
        assert (row["status"], row["task"], row["query"], row["batch"], row["versus"]) == ("ok", "copy", "after", "6", "contiguous")
        assert float(row["accuracy"]) == int(row["right"]) / 6
        assert float(row["accuracy_ci_low"]) <= float(row["accuracy"]) < float(row["accuracy_ci_high"])
        assert 0 <= float(row["credit"]) <= 1 and float(row["difference_p"]) == 1
        assert row["bytes_predicted"] == str(int(row["bytes_payload"]) + int(row["bytes_metadata"]) + int(row["bytes_slack"]))
    assert cells["paged/ring(window=64)", "10"]["kept_tokens"] == "64"
    assert 64 < float(cells["paged/f16/snapkv(budget=64)", "10"]["kept_tokens"]) < 640  # cut before the question


def test_a_window_forgets_an_early_record_and_a_cache_that_keeps_all_does_not(results):
    cells = by_cache_and_depth(results)
    for depth in ("10", "80"):
        assert cells["contiguous", depth]["credit"] == cells["paged", depth]["credit"] and float(cells["paged", depth]["kl_max"]) == 0
        assert float(cells["contiguous", depth]["credit"]) > 0.1
    assert float(cells["paged/ring(window=64)", "10"]["credit"]) < float(cells["contiguous", "10"]["credit"]) - 0.03


def test_a_prompt_is_read_at_full_precision_unless_asked_otherwise(results, tmp_path):
    succeeded(run(results / "config.toml", tmp_path / "run", {"task.prefill": "stored", "task.depth": 10}))
    full, stored = by_cache_and_depth(results), by_cache_and_depth(tmp_path / "run")
    assert {row["prefill"] for row in full.values()} == {"full"} and {row["prefill"] for row in stored.values()} == {"stored"}
    for variant in ("contiguous", "paged"):
        assert full[variant, "10"]["loss"] == stored[variant, "10"]["loss"]
    cut, window = ("paged/f16/snapkv(budget=64)", "10"), ("paged/ring(window=64)", "10")
    assert full[cut]["credit"] == stored[cut]["credit"] and math.isclose(float(full[cut]["loss"]), float(stored[cut]["loss"]), rel_tol=0.01)
    assert full[window]["loss"] != stored[window]["loss"]
    refused = run(results / "config.toml", tmp_path / "refused", {"task.prefill": "whole"})
    assert_refused(refused, "full")


def test_a_task_that_the_full_cache_fails_is_unusable(results):
    rows = table(results / "cells.csv")
    assert {(row["usable"], row["verdict"], row["full_right"]) for row in rows} == {("no", "", "0")}


def test_without_a_floor_answers_are_compared(results, tmp_path):
    said = succeeded(run(results / "config.toml", tmp_path / "run", {"task.floor": 0, "task.depth": 10})).stdout
    rows = by_cache_and_depth(tmp_path / "run")
    assert {row["usable"] for row in rows.values()} == {"yes"}
    assert rows["contiguous", "10"]["verdict"] == "baseline" and rows["paged/ring(window=64)", "10"]["verdict"] == "cannot_be_decided"
    assert {row["outcomes"] for row in rows.values()} == {"nnnnnn"} and {row["pooled_questions"] for row in rows.values()} == {"6"}
    assert "full cache" in said and "cannot be decided" in said
    assert recomputed(list(rows.values())) == {("copy", "after", "plain"): 5}


def test_a_known_question_is_compressed_with_the_text(results, tmp_path):
    succeeded(run(results / "config.toml", tmp_path / "run", {"task.query": "before"}))
    before, after = by_cache_and_depth(tmp_path / "run"), by_cache_and_depth(results)
    assert {row["query"] for row in before.values()} == {"before"}
    cut = "paged/f16/snapkv(budget=64)", "10"
    assert float(before[cut]["kept_tokens"]) < float(after[cut]["kept_tokens"])  # no question after the cut
    assert before["contiguous", "10"]["credit"] == after["contiguous", "10"]["credit"]
    succeeded(run(results / "config.toml", tmp_path / "stored", {"task.query": "before", "task.prefill": "stored"}))
    stored = by_cache_and_depth(tmp_path / "stored")
    # The cache reads the token before the answer itself: else the full cache would choose the answer's first token for all.
    assert float(before[cut]["kept_tokens"]) == float(stored[cut]["kept_tokens"]) + 1


def test_of_two_questions_only_the_first_is_known(results, tmp_path):
    succeeded(run(results / "config.toml", tmp_path / "run", {"task.task": "two", "task.query": "before", "task.depth": 50}))
    kept = by_cache_and_depth(tmp_path / "run")["paged/f16/snapkv(budget=64)", "50"]["kept_tokens"]
    assert float(kept) > 64 + 20  # the first answer, the second question and its answer follow the cut


def mcnemar(one, other):
    """Exact, two-sided."""
    return min(Fraction(1), Fraction(2 * sum(math.comb(one + other, i) for i in range(min(one, other) + 1)), 2 ** (one + other)))


def mantel_haenszel(strata):
    """Exact, two-sided: of all ways to deal each stratum's right answers to two sides of as many questions."""
    ways = {0: 1}
    for right, full, asked in strata:
        dealt = defaultdict(int)
        for so_far, count in ways.items():
            for mine in range(max(0, right + full - asked), min(asked, right + full) + 1):
                dealt[so_far + mine] += count * math.comb(asked, mine) * math.comb(asked, right + full - mine)
        ways = dealt
    seen = sum(right for right, _, _ in strata)
    tail = min(sum(count for at, count in ways.items() if at <= seen), sum(count for at, count in ways.items() if at >= seen))
    return min(Fraction(1), Fraction(2 * tail, sum(ways.values())))


def tango_score(change, cell, full, asked):
    """Of a supposed difference, with the likeliest share of the full cache's own answers found by thirds."""
    low, high = max(0.0, -change), (1 - change) / 2
    likelihood = lambda q: sum(n * math.log(max(p, 1e-300)) for n, p in ((cell, q + change), (full, q), (asked - cell - full, 1 - 2 * q - change)) if n)
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if likelihood(a) < likelihood(b) else (low, b)
    return (cell - full - asked * change) / math.sqrt(asked * (2 * low + change * (1 - change)))


def one_sided(row):
    """Questions that the cell and the full cache alone answer; without outcomes, of the pairings that its counts allow the one that differs most."""
    if row.get("outcomes"):
        assert len(row["outcomes"]) == int(row["batch"]) and set(row["outcomes"]) <= set("bcfn")
        return row["outcomes"].count("c"), row["outcomes"].count("f")
    right, full, asked = (int(row[name]) for name in ("right", "full_right", "batch"))
    apart, changed = abs(right - full), (1 - float(row["top1_agreement"])) * int(row["predictions"])
    each = max(each for each in range(min(right, full, asked - right, asked - full) + 1) if 2 * each + apart <= changed + 0.5
               and (apart < 2 or abs(mcnemar(each, each + apart) / float(row["difference_p"]) - 1) < 1e-6))  # fmt: skip
    return each + max(0, right - full), each + max(0, full - right)


def pooled(cells):
    """A variant's answers, (the cell's alone, the full cache's alone, right, full right, asked), as each of its cells states them."""
    strata = [tuple(int(row[name]) for name in ("right", "full_right", "batch")) for row in cells]
    (cell, full), (right, full_right, asked) = map(sum, zip(*map(one_sided, cells))), map(sum, zip(*strata))
    for row in cells:
        assert [int(row[f"pooled_{name}"]) for name in ("right", "full_right", "questions")] == [right, full_right, asked]
        assert float(row["pooled_p"]) == pytest.approx(float(mcnemar(cell, full)), rel=1e-6)
        assert float(row["stratified_p"]) == pytest.approx(float(mantel_haenszel(strata)), rel=1e-6)
        ends = float(row["pooled_change_ci_low"]), float(row["pooled_change_ci_high"])
        assert ends[0] <= float(row["pooled_change"]) <= ends[1] and float(row["pooled_change"]) == pytest.approx((right - full_right) / asked)
        for end, score in zip(ends, (1.959964, -1.959964)):
            assert abs(end) > 0.999 or tango_score(end, cell, full, asked) == pytest.approx(score, abs=1e-3)
    return cell, full, right, full_right, asked


def recomputed(rows):
    """Asserts each verdict and what it rests on, from the questions alone; returns how many variants a configuration compares."""
    configurations = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["usable"] == "yes":
            configurations[row["task"], row["query"], row.get("template") or "plain"][row["variant"]].append(row)
        else:
            assert row["verdict"] == row["pooled_p"] == ""
    same = lambda row: float(row["kl_max"]) == float(row["p_change_rms"]) == 0
    for variants in configurations.values():
        of = {name: pooled(cells) for name, cells in variants.items()}
        judged = [name for name, cells in variants.items() if not all(map(same, cells))]
        least = {name: mcnemar(0, max(of[name][3], of[name][4] - of[name][3])) for name in judged}
        most = next(k for k in range(1, len(judged) + 2) if sum(p <= Fraction(1, 20 * k) for p in least.values()) <= k)
        family = sorted((name for name in judged if least[name] <= Fraction(1, 20 * most)), key=lambda name: mcnemar(*of[name][:2]))
        differ = next((at for at, name in enumerate(family) if mcnemar(*of[name][:2]) > Fraction(1, 20 * (len(family) - at))), len(family))
        for name, cells in variants.items():
            verdict = ("cannot_be_decided" if name not in family else ("worse" if of[name][2] < of[name][3] else "better") if name in family[:differ]
                       else "not_found_worse" if float(cells[0]["pooled_change_ci_low"]) > -0.1 else "too_few_questions")  # fmt: skip
            assert all(row["verdict"] in ("baseline", "identical") if same(row) else row["verdict"] == verdict for row in cells), name
    return {key: len(variants) for key, variants in configurations.items()}


@pytest.mark.parametrize("name", ["tasks", "tasks_long"])
def test_committed_verdicts_follow_from_their_questions(name):
    rows = table(HOME / "results/epyc-2core" / name / "cells.csv")
    assert recomputed(rows)
    assert {row["verdict"] for row in rows if row["usable"] == "yes" and (row["right"], row["full_right"]) == ("0", "10")} <= {"worse"}


@pytest.fixture
def tasks(tmp_path):
    return shutil.copytree(HOME / "results/epyc-2core/tasks", tmp_path / "copy")


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_alone_decide_a_verdict(tasks, tmp_path, seed):
    """Any answers in the cells of a folder."""
    draw, rows = random.Random(seed), table(tasks / "cells.csv")
    flips = defaultdict(lambda: draw.choice((0, 0.01, 0.05, 0.2, 0.6)))
    for row in rows:
        asked = draw.choice((3, 6)) if row["task"] == "two" else int(row["batch"])
        outcomes = [draw.choice("ffc" if draw.random() < flips[row["variant"]] else "bbbn") for _ in range(asked)]
        row |= {"outcomes": "".join(outcomes), "batch": asked, "usable": "yes", "verdict": "ambiguous",
                "right": sum(o in "bc" for o in outcomes), "full_right": sum(o in "bf" for o in outcomes)}  # fmt: skip
    write_table(tasks / "cells.csv", rows)
    succeeded(kvlab("merge", tasks, "--out", tmp_path / "judged", "--no-plots"))
    judged = table(tmp_path / "judged/cells.csv")
    assert recomputed(judged) and len({row["verdict"] for row in judged}) > 2


def test_a_verdict_that_is_not_of_its_questions_is_found(tasks):
    rows = table(tasks / "cells.csv")
    rows[1]["verdict"] = "not_found_worse"
    write_table(tasks / "cells.csv", rows)
    done = kvlab("check-results", tasks)
    assert done.returncode == 1 and f"'{rows[1]['cell']}': verdict is 'not_found_worse', but all cells together give 'worse'" in done.stdout


def test_a_text_of_ids_alone_asks_for_a_tokenizer(results, tmp_path):
    ids = tmp_path / "ids.u16"
    model = shutil.copytree(HOME / "configs/models/kvlab-recall-1m", tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    ids.write_bytes(bytes([7, 0]) * 8000)
    done = run(results / "config.toml", tmp_path / "run", {"workload.model": model, "workload.text": ids})
    assert_refused(done, "needs a tokenizer", out=tmp_path / "run")
