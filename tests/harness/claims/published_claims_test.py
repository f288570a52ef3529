"""The published claims that ship with kvlab: their figures against arithmetic of its own, the comparison of two folders of
verdicts, their table in configs/claims/README.md, and the report."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from markupsafe import escape

HOME = Path(os.environ.get("KVLAB_HOME", Path(__file__).resolve().parents[3]))
PROGRAM = os.environ.get("KVLAB_PROGRAM", str(HOME / ".build/release/harness/kvlab"))
CLAIMS = HOME / "configs" / "claims"
COMMITTED = HOME / "results" / "epyc-2core" / "reproduce"
sys.path.insert(0, str(HOME / "plots"))

from claims_markdown import RANKS, markdown, summary

from claims import VERDICTS, disagreements, read_claims, write_claims

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> dict[tuple[str, str, str], dict[str, str]]:
    """Figures that no times and no long runs are needed for, by (file, claim, figure)."""
    names = """000/llama-2-7b 000/dominates 000/integers 000/tiles 001/memory-table 001/flops 001/precision 001/gpu 002/formula
    003/bits 003/round-trip 004/row-bytes 004/memory-fp32 004/memory-optimised 004/memory-offload 004/memory-offload-ram 004/deltanet
    004/dominates 004/rates 004/rates-window 004/done-rates hf-quantised-cache/saving turboquant/unbiased""".split()
    out = tmp_path_factory.mktemp("claims") / "out"
    done = subprocess.run(
        [PROGRAM, "reproduce", *names, "--no-plots", "--quick", "--out", out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {(row["source"], row["claim"], row["figure"]): row for row in read_claims(out)}


def value(figures, *key: str) -> float:
    return float(figures[key]["computed_value"])


def digits(x: float) -> float:
    """Rounded to the nine digits that tables print."""
    return float(f"{x:.9g}")


def kv_bytes(layers, kv_heads, head_dim, tokens, element=4.0):
    return 2 * layers * kv_heads * head_dim * tokens * element


def test_the_llama_example_is_a_gibibyte(figures):
    row = figures["000-design-answer", "llama-2-7b", ""]
    assert value(figures, "000-design-answer", "llama-2-7b", "") == digits(2 * 32 * 32 * 128 * 2048 * 2) == digits(GIB)
    assert row["measured_value"] == row["computed_value"]
    assert row["verdict"] == "contradicted" and "7.916" in row["reason"]


@pytest.mark.parametrize("tokens", [128, 1024, 4096, 16384, 65536, 131072])
def test_the_memory_table_is_of_two_tensors_a_layer(figures, tokens):
    layer = 2 * 4096 * tokens * 4
    for name, expected in [("per layer", layer), ("total", 32 * layer), ("total in GB", 32 * layer)]:
        row = figures["001-numpy-readme", "memory-table", f"{tokens}, {name}"]
        assert float(row["computed_value"]) == pytest.approx(expected, rel=1e-8)
        published, unit = re.fullmatch(r"([\d,.]+) (MB|GB)", row["published"]).groups()
        printed = float(published.replace(",", "")) * {"MB": 1e6, "GB": 1e9}[unit]
        assert printed / expected == pytest.approx(0.16, rel=0.025)
        assert row["verdict"] == "contradicted"


def test_flops_are_summed_step_by_step(figures):
    per_token, per_pair = 2 * 12 * 4096**2 * 32, 4 * 4096 * 32
    prompt = 1024 * per_token + 1024 * 1024 / 2 * per_pair
    without = prompt + sum((1024 + i) * per_token + (1024 + i) ** 2 / 2 * per_pair for i in range(1, 101))
    cached = prompt + sum(per_token + (1024 + i) * per_pair for i in range(1, 101))
    assert value(figures, "001-numpy-readme", "flops", "without cache") == pytest.approx(without, rel=1e-3)
    assert value(figures, "001-numpy-readme", "flops", "with cache") == pytest.approx(cached, rel=1e-6)
    assert value(figures, "001-numpy-readme", "flops", "speedup") == pytest.approx(without / cached, rel=1e-3)


def test_precisions_count_a_scale_a_token_and_head(figures):
    for name, bits, scale in [("FP32", 32, 0), ("FP16", 16, 0), ("INT8", 8, 4), ("INT4", 4, 4)]:
        stored = 128 * bits / 8 + scale
        assert value(figures, "001-numpy-readme", "precision", f"{name}, saving") == pytest.approx(512 / stored)
        assert value(figures, "001-numpy-readme", "precision", f"{name}, bytes an element") == pytest.approx(stored / 128)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_bits_with_their_scales(figures, bits):
    # Scale and zero point of K are 2 x 16 bits for 32 tokens of a channel, of V 2 x 32 for 64 channels of a token.
    codes = 1024 * 64 * ((bits + 2 * 16 / 32) + (bits + 2 * 32 / 64))
    residual = 32 * 64 * (16 + 16)  # a ring of one group of raw tokens, K and V
    stored = value(figures, "003-tract-in-place", "bits", f"int{bits}, a scale a channel and 32 tokens")
    assert stored == pytest.approx(1024 * 64 * (16 + 16) / (codes + residual))
    whole = value(figures, "003-tract-in-place", "bits", f"int{bits}, a scale a channel")
    assert whole == pytest.approx(1024 * 64 * 32 / (2 * 1024 * 64 * bits + 64 * 64 + 1024 * 64))


CONTEXTS = {"2K": 2 * KIB, "32K": 32 * KIB, "200K": 200 * KIB, "1M": MIB, "10M": 10 * MIB}


def test_long_context_tables_at_1024_tokens_a_k(figures):
    assert value(figures, "004-long-context", "row-bytes", "") == 4096
    for name in ["2K", "32K", "200K", "1M"]:
        assert value(figures, "004-long-context", "memory-fp32", f"{name}, KV cache") == digits(kv_bytes(6, 2, 256, CONTEXTS[name]))
    for name in ["200K", "1M", "10M"]:
        for codec, element in [("FP16", 2), ("Q8_0", 34 / 32), ("Q4_0", 18 / 32)]:
            expected = kv_bytes(6, 2, 256, CONTEXTS[name], element)
            assert value(figures, "004-long-context", "memory-optimised", f"{name}, {codec}") == digits(expected)
            verdict = figures["004-long-context", "memory-optimised", f"{name}, {codec}"]["verdict"]
            assert verdict == "reproduced"
    assert value(figures, "004-long-context", "memory-offload", "1M, VRAM") == digits(192 * MIB)
    assert value(figures, "004-long-context", "deltanet", "state") == digits(MIB)


def test_rates_are_the_first_cells_time_and_the_caches(figures):
    rest = 1 / 42 - kv_bytes(6, 2, 256, CONTEXTS["2K"]) / 960e9
    for name, codec, element in [("32K", "FP32", 4), ("200K", "FP16", 2), ("1M", "Q8_0", 34 / 32)]:
        expected = 1 / (rest + kv_bytes(6, 2, 256, CONTEXTS[name], element) / 960e9)
        assert value(figures, "004-long-context", "rates", f"{name}, {codec}") == pytest.approx(expected)
    from_ram = rest + 192 * MIB / 960e9 + (kv_bytes(6, 2, 256, MIB, 2) - 192 * MIB) / 60e9
    streamed = value(figures, "004-long-context", "rates-window", "1M, older tokens read from RAM (11d)")
    assert streamed == pytest.approx(1 / from_ram)


def test_a_quantised_cache_in_practice_keeps_its_newest_raw(figures):
    for tokens in [512, 2048, 10000]:
        closed = (tokens - 128) // 64 * 64  # rows in whole groups, at 4.5 bits; room for 128 + 64 rows in 16
        found = value(figures, "hf-quantised-cache", "saving", f"{tokens} tokens")
        assert found == pytest.approx(16 * tokens / (closed * 4.5 + 192 * 16), rel=1e-6)


# --- What ships --------------------------------------------------------------------------------------------


def decided(figures, *key: str) -> dict[str, str]:
    """Verdicts of the checks that decide the figures of a claim, by their names."""
    return {name: row["verdict"] for (*of, name), row in figures.items() if tuple(of) == key and row["decides"] == "yes"}


def test_a_figure_is_contradicted_only_in_a_setting_of_its_source(figures):
    tract, answer, plan = "003-tract-in-place", "000-design-answer", "004-long-context"
    # int4 under one scale a channel is 3.53 times smaller, which rounds to 4; int2 is 6.3 times, in the best reading.
    assert decided(figures, tract, "bits") == {
        "int8, a scale a channel": "reproduced", "int4, a scale a channel": "reproduced", "int2, a scale a channel": "contradicted",
    }  # fmt: skip
    assert set(decided(figures, answer, "integers").values()) == {"reproduced"}
    assert value(figures, answer, "integers", "INT4, K per channel") == pytest.approx(32 / (8 + 64 / 2048 + 64 / 128))
    assert decided(figures, answer, "dominates") == {"the example itself, 2048 tokens": "contradicted"}
    assert set(decided(figures, plan, "dominates").values()) == {"reproduced"}
    assert set(decided(figures, plan, "rates-window").values()) == {"consistent"}
    rest, row = 1 / 42 - kv_bytes(6, 2, 256, CONTEXTS["2K"]) / 960e9, kv_bytes(6, 2, 256, 1, 18 / 32)
    fastest = 1 / (rest + 16384 * row / 960e9 + (MIB - 16384) * row / 60e9)
    assert value(figures, plan, "done-rates", "1M with 16K tokens in VRAM, Q4_0") == pytest.approx(fastest) and fastest > 8
    assert "contradicted" not in decided(figures, plan, "done-rates").values()
    assert set(decided(figures, "002-kv-cache-note", "formula").values()) == {"reproduced"}


def test_no_verdict_is_kinder_than_what_was_checked(figures):
    answer, plan = "000-design-answer", "004-long-context"
    assert set(decided(figures, answer, "tiles").values()) == {"consistent"}  # they fit; that they are typical is not checked
    assert decided(figures, plan, "memory-offload-ram") == {"": "contradicted"}
    ram = value(figures, plan, "memory-offload-ram", "")
    assert ram == digits(kv_bytes(6, 2, 256, 10 * MIB, 2) - 192 * MIB)


def test_data_sheets_and_tests_decide_where_they_can(figures):
    readme = "001-numpy-readme"
    gpu = {name: row for (source, claim, name), row in figures.items() if (source, claim) == (readme, "gpu")}
    assert len(gpu) == 5 and {row["verdict"] for row in gpu.values()} == {"reproduced"}
    assert decided(figures, "turboquant", "unbiased") == {"": "reproduced"}
    assert decided(figures, "003-tract-in-place", "round-trip") == {"": "reproduced"}


@pytest.mark.parametrize("file", sorted(CLAIMS.glob("*.toml")), ids=lambda file: file.stem)
def test_a_claim_that_a_test_holds_names_one_that_there_is(file):
    claims = tomllib.loads(file.read_text(encoding="utf-8"))["claim"]
    for test in [part["test"] for claim in claims for part in [claim, *claim.get("figure", [])] if "test" in part]:
        path, name = test.split(" ")
        suite, case = name.split(".")
        assert re.search(rf"^TEST(?:_[FP])?\({suite}, {case}\)", (HOME / path).read_text(encoding="utf-8"), re.MULTILINE), test


def checks():
    """(file, claim, the claim's keys with those of one of its figures)"""
    for file in sorted(CLAIMS.glob("*.toml")):
        for claim in tomllib.loads(file.read_text(encoding="utf-8"))["claim"]:
            yield from ((file.stem, claim["id"], {**claim, **figure}) for figure in claim.get("figure", [{}]))


def test_a_figure_of_another_model_agrees_within_a_factor():
    model_runs = {"arguments", "drafts", "real", "real_long", "replicas"}
    for file, claim, check in checks():
        numbers = [check["published"]] if "{" not in check["published"] else [str(cell) for row in check["rows"] for cell in row]
        of_a_model = {cell.get("run") for cell in check.get("cells", {}).values()} & model_runs
        if of_a_model and "read_as" not in check and any(re.fullmatch(r"[~≈]?(?!1×)[\d.–]+ ?[×%]", number) for number in numbers):
            assert check.get("tolerance", "").startswith("factor "), (file, claim)


def test_what_a_claim_needs_is_not_there():
    """A GPU is at times: then the reason has the command that settles the claim on it."""
    needed = {(check["needs"], file, claim): check["reason"] for file, claim, check in checks() if "needs" in check}
    known = re.search(r"kNeeds\[\] = \{(.*?)\};", (HOME / "harness/claims/claims.h").read_text(), re.S)[1]
    assert {need for need, *_ in needed} == set(re.findall(r'"(.*?)"', known))
    for (need, *claim), reason in needed.items():
        assert need not in ("a GPU", "more questions") or "./kvlab" in reason, claim
    models = {model.stem for model in (HOME / "configs/models").glob("*.json") if json.loads(model.read_text()).get("num_parameters", 0) > 1e9}
    measured = {model for config in (HOME / "results").glob("*/*/config.toml") for model in re.findall(r"^model = '([\w.-]+)'", config.read_text(), re.M)}
    assert not models & measured and not any("Apple" in path.read_text() for path in (HOME / "results").glob("*/*/env.json"))
    assert all(int(row["pooled_questions"] or 0) < 100 for row in csv.DictReader((HOME / "results/epyc-2core/tasks/cells.csv").open()))


def test_microseconds_of_the_h200_are_its_runs():
    split = next(row for row in csv.DictReader((HOME / "results/h200/gpu_check/cells.csv").open()) if row["name"] == "1 x 4096")
    assert f"{split['whole_us']} / {split['split_us']}" in (CLAIMS / "flash-decoding.toml").read_text()


def test_the_list_counts_the_same_figures_and_checks():
    rows = read_claims(COMMITTED)
    listed = subprocess.run([PROGRAM, "reproduce", "--list"], capture_output=True, text=True).stdout.splitlines()[-1]
    assert f": {sum(row['decides'] == 'yes' for row in rows)} published figures, {len(rows)} checks;" in listed


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_what_documents_name_is_where_the_list_says(tmp_path):
    text = (CLAIMS / "SOURCES.md").read_text(encoding="utf-8")
    here = [cells_of(line)[1] for line in text.splitlines() if line.startswith("| ") and not line.startswith("| the document")]
    assert len(here) > 100 and all(here)
    for cell in here:  # a place, or a reason
        assert re.search(r"\]\(|`|: ", cell), cell
    for path, case in re.findall(r"\[[\w.]+\]\((\.\./\.\./tests/[^)]+\.cc)\), `(\w+)`", text):
        assert case in (CLAIMS / path).read_text(encoding="utf-8"), case
    ids = {f"{file.stem[:3]}/{claim['id']}" for file in CLAIMS.glob("00?-*.toml") for claim in tomllib.loads(file.read_text())["claim"]}
    assert set(re.findall(r"`(00\d/[\w-]+)`", text)) == ids
    placements = r"(contiguous|concat|doubling|segmented|paged|tiered)\b"
    specs = [spec for spec in dict.fromkeys(re.findall(r"`([a-z0-9_=(),./]+)`", text)) if re.match(placements, spec)]
    done = subprocess.run([PROGRAM, "tables", "--lengths", "1K", "--measure", "1KiB", "--format", "csv", "--variants", ";".join(specs)],
                          capture_output=True, text=True)  # fmt: skip
    assert len(specs) > 25 and done.returncode == 0, done.stderr


def test_every_claim_file_names_and_quotes_its_source():
    files = sorted(CLAIMS.glob("*.toml"))
    assert [file.stem[:3] for file in files][:5] == ["000", "001", "002", "003", "004"] and len(files) >= 11
    for file in files:
        claims = tomllib.loads(file.read_text())
        unreviewed = file.stem[:3].isdigit() or file.stem == "threads"
        assert claims.get("kind", "paper") == ("document" if unreviewed else "paper")
        assert "shared/" not in file.read_text(), (file.name, "is nowhere but here")
        for claim in claims["claim"]:
            assert claim["quote"].strip() and claim["where"].strip(), (file.name, claim["id"])


@pytest.mark.parametrize("file", sorted(CLAIMS.glob("*.toml")), ids=lambda file: file.stem)
def test_a_document_can_be_found_by_anyone(file):
    claims = tomllib.loads(file.read_text(encoding="utf-8"))
    public = r"arXiv:\d{4}\.\d{5}|https://[a-z.]+/\S+|no public address known"
    by_number = all(re.match(r"[\w.-]+ #\d+\b", claim["where"]) for claim in claims["claim"])  # of a thread in a repository
    assert by_number or re.search(public, claims["document"])


SOURCES = Path(os.environ.get("KVLAB_DATA", HOME.parent / "shared" / "data")).parent / "sources"


def plain(text: str) -> str:
    """Without what Markdown and the copying of a page add or take away."""
    return re.sub(r"[\s*`|\\$\"“”]+", "", text).lower()


def is_printed(text: str, sign: str, number: str, unit: str) -> bool:
    """With its sign, as a number of its own and not a part of another; its unit may stand in the head of a table."""
    signs = {"≈": "[≈~]", "~": "[≈~]"}.get(sign, re.escape(sign))
    units = {"×": "[x×]", "%": "%"}.get(unit, rf"(?:{unit})?")
    return re.search(rf"(?<![\d.,]){signs} ?{re.escape(number)} ?{units}(?![\d]|[.,]\d)", text) is not None


def test_a_figure_is_not_found_in_another():
    assert is_printed("| 200K | ~25 |", "~", "25", "tok/s") and not is_printed("~250", "~", "25", "tok/s")
    assert not is_printed("12 of 24", "", "2", "×") and is_printed("int8 2x, int4", "", "2", "×")


@pytest.mark.skipif(not SOURCES.exists(), reason="the sources are not here")
@pytest.mark.parametrize("number", ["000", "001", "002", "003", "004"])
def test_quotes_and_figures_are_in_the_source(number):
    [file] = CLAIMS.glob(f"{number}*.toml")
    [source] = SOURCES.glob(f"{number}*")
    text = plain(source.read_text(encoding="utf-8"))
    for claim in tomllib.loads(file.read_text(encoding="utf-8"))["claim"]:
        for part in claim["quote"].split("…"):
            assert plain(part) in text, (claim["id"], part)
        for figure in (str(value) for row in claim.get("rows", []) for value in row):
            printed = re.fullmatch(r"([~≈<≤>]?) ?([\d,.]+) ?(MB|GB|tok/s|ms|×|%|B)", figure)
            assert not printed or is_printed(source.read_text(encoding="utf-8"), *printed.groups()), (claim["id"], figure)


def test_every_list_of_verdicts_is_the_programs():
    header = (HOME / "harness" / "claims" / "verdict.h").read_text()
    ranks = dict(re.findall(r'inline constexpr Verdict k\w+\{\s*"([^"]+)", (\d)', header))
    names = set(ranks)
    assert sorted(names, key=ranks.get) == [*RANKS, "reproduced"]
    readme = (CLAIMS / "README.md").read_text()
    table = readme[readme.index("| verdict | meaning |") : readme.index("- A figure has the worst verdict")]
    assert names and set(VERDICTS) == names == set(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE))
    assert list(VERDICTS) == re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)


# --- Two folders of verdicts -------------------------------------------------------------------------------


def row(claim: str, verdict: str, machine: str = "no", figure: str = "") -> dict[str, str]:
    return {"source": "s", "claim": claim, "figure": figure, "verdict": verdict, "machine": machine}


def test_only_verdicts_that_no_machine_decides_are_compared():
    old = [row("a", "reproduced"), row("b", "contradicted"), row("t", "reproduced", "yes"), row("gone", "reproduced")]
    new = [row("a", "reproduced"), row("b", "reproduced"), row("new", "contradicted", figure="f")]
    assert disagreements(old, old) == []
    assert disagreements(old, new) == [
        "s/b: committed contradicted, fresh reproduced",
        "s/gone: committed reproduced, fresh no such figure",
        "s/new/f: committed no such figure, fresh contradicted",
    ]


def test_the_comparison_is_a_command(tmp_path):
    for name in ["old", "new"]:
        shutil.copytree(COMMITTED, tmp_path / name)
    command = [sys.executable, HOME / "plots" / "claims.py", tmp_path / "old", tmp_path / "new"]
    assert subprocess.run(command).returncode == 0
    path = tmp_path / "new" / "claims.csv"
    path.write_text(path.read_text().replace(",contradicted,", ",reproduced,", 1))
    assert subprocess.run(command).returncode == 1
    path.write_text(path.read_text().replace("verdict", "verdicts", 1))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "missing column verdict" in done.stderr


def test_the_committed_markdown_is_that_of_the_committed_figures():
    rows = read_claims(COMMITTED)
    assert markdown(rows) == (COMMITTED / "claims.md").read_text()
    assert summary(rows) == (COMMITTED / "summary.md").read_text()


def test_the_report_shows_every_figure_and_escapes_it(tmp_path):
    shutil.copytree(COMMITTED, tmp_path / "run")
    path = tmp_path / "run" / "claims.csv"
    path.write_text(path.read_text().replace("not testable here,", "not testable here,<script>alert(1)</script> ", 1))
    page = write_claims(tmp_path / "run", tmp_path / "run").read_text()
    with path.open(newline="") as file:
        assert page.count("<tr data-text=") == sum(1 for _ in csv.DictReader(file))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert not re.search(r"(src=|<link[^>]*href=.)(?!.data:)", page.replace('href="data:,"', ""))  # nothing is fetched
