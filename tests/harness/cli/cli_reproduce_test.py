"""`kvlab reproduce`: published claims and their verdicts."""

import csv
import json

import pytest
from program import kvlab, table

CLAIMS = """
document = "a paper"
[model]
kv_heads = 2
head_dim = 64
[run.update]
experiment = "growth"
threads = 1
model = { q_heads = 2, kv_heads = 2, head_dim = 32 }
sweep = { variants = ["concat", "doubling"], seq_len = 128 }
measure = { attend = false, repetitions = 5, null_ab = false }
[[claim]]
id = "size"
text = "a size"
where = "Table 1"
quote = "100 tokens | 102.4 KB | 1 MB"
check = "closed form"
bytes = { cache = "contiguous" }
tokens = 100
columns = ["figure_"]
rows = [["102.4 KB"], ["1 MB"]]
published = "{figure_}"
[[claim]]
id = "speed"
text = "a speed"
where = "Table 2"
quote = "in place is faster"
check = "ordering"
published = ">0×"
cells.concat = { run = "update", variant = "concat", metric = "step_us", take = "sum" }
cells.doubling = { run = "update", variant = "doubling", metric = "step_us", take = "sum" }
measured = "concat / doubling"
[[claim]]
id = "gpu"
text = "a GPU"
where = "Table 3"
quote = "8x"
check = "none"
published = "8×"
reason = "no GPU"
"""


@pytest.fixture
def claims(tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(CLAIMS)
    return path


def reproduce(*args, **options):
    return kvlab("reproduce", "--no-plots", *args, **options)


def test_reproduce_prints_and_writes_every_verdict(claims, tmp_path):
    out = tmp_path / "out"
    done = reproduce(claims, "--out", out)
    assert done.returncode == 0, done.stderr
    verdicts = {(row["claim"], row["figure"]): row for row in table(out / "claims.csv")}
    assert [row["verdict"] for row in verdicts.values()] == [
        "reproduced", "contradicted", "reproduced", "not testable here",
    ]  # fmt: skip
    speed = verdicts["speed", ""]
    assert speed["machine"] == "yes"
    assert float(speed["interval_low"]) <= float(speed["measured_value"]) <= float(speed["interval_high"])
    assert "102400 B" not in done.stdout and "102.4 KB" in done.stdout
    assert "4 figures: 2 reproduced, 1 contradicted, 1 not testable here" in done.stdout
    assert "> 100 tokens | 102.4 KB | 1 MB" in (out / "claims.md").read_text()
    summary = (out / "summary.md").read_text()
    assert summary.count("\n| ") == 2 + 4  # a line the source and a line a claim, each under a head
    assert "| paper | 2 | 1 | 1 | a size (1 MB: 1 MB, here 0.1024 MB) |" in summary
    assert (out / "runs" / "paper-update" / "cells.csv").exists()
    assert json.loads((out / "env.json").read_text())["quick"] is False


def test_quick_leaves_out_what_the_machine_decides(claims, tmp_path):
    done = reproduce(claims, "--quick", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [row["claim"] for row in table(tmp_path / "out" / "claims.csv")] == ["size", "size", "gpu"]


def test_one_claim_of_a_file_can_be_named(tmp_path):
    done = reproduce("001/memory-table", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "out" / "claims.csv")
    assert len(rows) == 18 and {row["claim"] for row in rows} == {"memory-table"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["005"], "'005' names no claim file; there are 000-design-answer"),
        (["00"], "'00' names several claim files"),
        (["001/nothing"], "'nothing' is no claim of"),
        (["missing.toml"], "claim file 'missing.toml' does not exist"),
    ],
)
def test_a_name_that_is_none_is_one_line(arguments, message, tmp_path):
    done = reproduce(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 2 and message in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_bad_claim_file_is_one_line_with_its_place(claims, tmp_path):
    claims.write_text(CLAIMS.replace('where = "Table 3"', 'were = "Table 3"'))
    done = reproduce(claims, "--out", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "paper.toml:33: [claim.gpu] needs where" in done.stderr, done.stderr


def test_results_are_not_written_over(claims, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    done = reproduce(claims, "--out", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
