"""`kvlab reproduce`: published claims and their verdicts."""

import json
import re
import tomllib

import pytest
from program import HOME, assert_refused, kvlab, succeeded, table

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
needs = "a GPU"
reason = "it is of one"
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
    done = succeeded(reproduce(claims, "--out", out))
    verdicts = {(row["claim"], row["figure"]): row for row in table(out / "claims.csv")}
    assert [row["verdict"] for row in verdicts.values()] == [
        "reproduced", "contradicted", "reproduced", "not testable here",
    ]  # fmt: skip
    speed = verdicts["speed", ""]
    assert speed["machine"] == "yes"
    assert float(speed["interval_low"]) <= float(speed["measured_value"]) <= float(speed["interval_high"])
    assert speed["how"].splitlines()[:2] == [
        "measured: concat / doubling", "  concat = sum of step_us in run update, variant concat"]  # fmt: skip
    assert tomllib.loads(speed["run"])["sweep"] == {"variants": ["concat", "doubling"], "seq_len": 128}
    size = verdicts["size", "102.4 KB"]
    assert size["how"].splitlines() == [
        "computed: cache", "  cache = bytes of contiguous, layers 1, KV heads 2, head dim 64, tokens 100, batch 1"]  # fmt: skip
    assert size["run"] == ""
    assert verdicts["gpu", ""]["how"] == ""
    assert "102400 B" not in done.stdout and "102.4 KB" in done.stdout
    assert "4 published figures, 4 checks: 2 reproduced, 1 contradicted, 1 not testable here" in done.stdout
    assert (out / "runs" / "paper-update" / "cells.csv").exists()
    assert json.loads((out / "env.json").read_text())["quick"] is False


def test_quick_leaves_out_what_the_machine_decides(claims, tmp_path):
    succeeded(reproduce(claims, "--quick", "--out", tmp_path / "out"))
    assert [row["claim"] for row in table(tmp_path / "out" / "claims.csv")] == ["size", "size", "gpu"]


def test_tables_are_printed_as_their_source_has_them(tmp_path):
    done = succeeded(reproduce("004/memory-optimised", "004/memory-offload-ram", "--tables", "--measure", "300MB", "--out", tmp_path / "out"))
    lines = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    [size] = [line for line in lines if line[0] == "10M"]
    assert size[:5] == ["10M", "120 GB", "120 GiB", "64 GB", "63.75 GiB"]
    assert "After Optimization" in done.stdout and "contradicted" in done.stdout
    rows = table(tmp_path / "out" / "claims.csv")
    assert {(row["table"], row["row"], row["column"]) for row in rows} >= {("After Optimization", "10M", "RAM"), ("After Optimization", "1M", "Q8_0")}
    assert not any(row["measured"] for row in rows)  # all are larger than 300 MB
    assert_refused(reproduce("002", "--tables", "--out", tmp_path / "none"), "no claim named here states a table", out=tmp_path / "none")


@pytest.mark.parametrize(("limit", "counted"), [("100MB", 2), ("400MB", 5)])
def test_of_one_claim_caches_up_to_a_size_are_counted(limit, counted, tmp_path):
    succeeded(reproduce("001/memory-table", "--measure", limit, "--out", tmp_path / "out"))
    rows = table(tmp_path / "out" / "claims.csv")
    assert len(rows) == 18 and {row["claim"] for row in rows} == {"memory-table"}
    assert sum(bool(row["measured"]) for row in rows) == counted


def listed(*words):
    done = succeeded(kvlab("reproduce", "--list", *words))
    assert max(map(len, done.stdout.splitlines())) <= 120
    return done.stdout


def claims_in(text):
    return re.findall(r"^  (\S+/\S+)  ", text, re.M)


def test_the_list_has_every_claim_and_figure_with_its_source():
    text, want, sources = listed(), [], sorted((HOME / "configs" / "claims").glob("*.toml"))
    for path in sources:
        claims = tomllib.loads(path.read_text())
        assert re.search(rf"^{re.escape(claims['title'])}  \S", text, re.M)
        want += [f"{path.stem}/{claim['id']}" for claim in claims["claim"]]
    assert claims_in(text) == want
    for row in table(HOME / "results" / "epyc-2core" / "reproduce" / "claims.csv"):
        assert row["claim"] not in text or row["published"] in text, row
    counts = rf"{len(want)} claims of {len(sources)} sources: \d+ published figures, \d+ checks; `kvlab reproduce NAME` checks one\n$"
    assert re.search(counts, text)


def test_the_list_is_searched_by_words():
    assert {name.split("/")[0] for name in claims_in(listed("tract"))} == {"003-tract-in-place"}  # in no "abstract"
    assert claims_in(listed("TRACT", "reallocate")) == ["003-tract-in-place/reallocations"]  # in any case; in the text
    assert {name.split("/")[0] for name in claims_in(listed("2402.02750"))} == {"kivi"}  # in the document
    assert "flash-decoding/speedup" in claims_in(listed("50x faster than FlashAttention"))  # in the quote
    assert claims_in(listed("blocks of 16 tokens, served")) == ["vllm/waste"]  # in a figure's name


MODEL = HOME / "configs/models/kvlab-recall-1m"


@pytest.mark.parametrize(("codec", "verdict"), [("f16", "reproduced"), ("token(bits=4)", "differs in this replica")])
def test_a_broken_text_is_not_coherent(codec, verdict, tmp_path):
    """Four bits choose the full cache's token in most predictions, and yet another text."""
    runs, *claims = (HOME / "configs/claims/004-long-context.toml").read_text().split("[[claim]]\n")
    claim, *figures = next(claim for claim in claims if "Fp16KvCache_CoherentOutput" in claim).split("[[claim.figure]]\n")
    broken = "[[claim]]\n".join([runs, "[[claim.figure]]\n".join([claim, next(figure for figure in figures if "Fp16KvCache" in figure)])])
    broken = broken.replace('batch = 8, variants = ["contiguous/f16"] }\ngenerate', f'batch = 8, variants = ["contiguous/{codec}"] }}\ngenerate')
    broken = broken.replace('run = "text", variant = "contiguous/f16"', f'run = "text", variant = "contiguous/{codec}"')
    (tmp_path / "broken.toml").write_text(broken)
    succeeded(reproduce(tmp_path / "broken.toml", "--quick", "--out", tmp_path / "out"))
    (row,) = (row for row in table(tmp_path / "out/claims.csv") if row["figure"] == "Fp16KvCache_CoherentOutput")
    assert row["verdict"] == verdict, row


def test_a_model_of_ones_own_takes_the_place_of_the_claims(tmp_path):
    out = tmp_path / "out"
    done = succeeded(reproduce("003/int8", "--out", out, "--no-plots", "--model", MODEL, "--text", MODEL / "stream.txt"))
    assert "int8 deviates by about 0.5 %" in done.stdout
    (env,) = out.glob("runs/003-tract-in-place-real_bits/env.json")  # in place of a committed run of SmolLM2
    assert json.loads(env.read_text())["text"]["name"] == "stream.txt"
    synthetic = json.loads((out / "runs/003-tract-in-place-bits-seed1/env.json").read_text())
    assert "text" not in synthetic
    committed = {row["figure"]: row for row in table(HOME / "results/epyc-2core/reproduce/claims.csv") if row["claim"] == "int8"}
    changed = [row["figure"] for row in table(out / "claims.csv") if row["measured"] != committed[row["figure"]]["measured"]]
    assert len(changed) == 1, changed


def test_a_bad_claim_file_is_one_line_with_its_place(claims, tmp_path):
    claims.write_text(CLAIMS.replace('where = "Table 3"', 'were = "Table 3"'))
    assert_refused(reproduce(claims, "--out", tmp_path / "out"), "paper.toml:33: [claim.gpu] needs where")


def test_results_are_not_written_over(claims, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert_refused(reproduce(claims, "--out", tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
