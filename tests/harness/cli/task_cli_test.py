"""Questions about a text as users meet them, with the model that comes with kvlab, which answers none but copies a part of a record."""

import pytest
from program import HOME, assert_refused, results_of, run, succeeded, table

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


def test_a_task_that_the_full_cache_fails_is_unusable(results):
    rows = table(results / "cells.csv")
    assert {(row["usable"], row["verdict"], row["full_right"]) for row in rows} == {("no", "", "0")}


def test_without_a_floor_answers_are_compared(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    said = succeeded(run(config, tmp_path / "run", {"task.floor": 0, "task.depth": 10})).stdout
    rows = by_cache_and_depth(tmp_path / "run")
    assert {row["usable"] for row in rows.values()} == {"yes"}
    assert rows["contiguous", "10"]["verdict"] == "baseline" and rows["paged/ring(window=64)", "10"]["verdict"] == "ambiguous"
    assert "full cache" in said


def test_a_known_question_is_compressed_with_the_text(results, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    succeeded(run(config, tmp_path / "run", {"task.query": "before"}))
    before, after = by_cache_and_depth(tmp_path / "run"), by_cache_and_depth(results)
    assert {row["query"] for row in before.values()} == {"before"}
    cut = "paged/f16/snapkv(budget=64)", "10"
    assert float(before[cut]["kept_tokens"]) < float(after[cut]["kept_tokens"])  # no question after the cut
    assert before["contiguous", "10"]["credit"] == after["contiguous", "10"]["credit"]


def test_of_two_questions_only_the_first_is_known(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    succeeded(run(config, tmp_path / "run", {"task.task": "two", "task.query": "before", "task.depth": 50}))
    kept = by_cache_and_depth(tmp_path / "run")["paged/f16/snapkv(budget=64)", "50"]["kept_tokens"]
    assert float(kept) > 64 + 20  # the first answer, the second question and its answer follow the cut


@pytest.mark.parametrize(("settings", "message"), [
    ({"task.task": "needle"}, "no task 'needle'; known: single, keys, two, queries, values, lookup, variables, words, copy"),
    ({"task.query": "never"}, "'never' is neither \"before\" nor \"after\""),
    ({"task.template": "alpaca"}, "'alpaca' is neither \"plain\" nor \"chatml\""),
    ({"task.template": "chatml"}, "template chatml: the model's tokenizer has no token <|im_end|>"),
    ({"task.depth": "[110]"}, "depth 110 is beyond the text's end: give percent, at most 100"),
    ({"task.floor": 2}, "floor"),
    ({"task.seq_len": 100}, "tokens more than the 101 there are"),
    ({"task.seq_len": 2000}, "2000 tokens are past the model's rotary table of 1024 positions"),
    ({"task.batch": 4000}, "4000 windows of 640 need"),
])  # fmt: skip
def test_mistakes_are_refused_in_one_line(tmp_path, settings, message):
    config = tmp_path / "c.toml"
    config.write_text(CONFIG)
    assert_refused(run(config, tmp_path / "run", settings), message)
    assert not (tmp_path / "run").exists()


def test_a_text_of_ids_alone_asks_for_a_tokenizer(tmp_path):
    config, ids = tmp_path / "c.toml", tmp_path / "ids.u16"
    ids.write_bytes(bytes([7, 0]) * 8000)
    config.write_text(CONFIG)
    done = run(config, tmp_path / "run", {"workload.tokenizer": '""', "workload.text": ids})
    assert_refused(done, "needs a tokenizer", out=tmp_path / "run")
