"""`kvlab plan`: which caches serve requests in a machine's memory."""

import csv
import math
import resource

import pytest
from program import DATA, HOME, kvlab, succeeded, table, write_trace

DEVICE = ("--device", "read_gbps=1000,flops=1e14,link_gbps=20")
VARIANTS = "contiguous/f16; paged/f16; paged/q8_0"


def plan(*args, **options):
    return kvlab("plan", *args, **options)


def rows_of(*args, **options):
    shown = succeeded(plan(*args, "--format", "csv", **options)).stdout
    return {row["variant"]: row for row in csv.DictReader(shown.splitlines())}


@pytest.fixture
def model(config_json):
    """2 layers of 2 KV heads of 64: 1,024 bytes a token in f16."""
    return config_json(head_dim=64, max_position_embeddings=2048)


@pytest.fixture
def trace(tmp_path):
    """50 requests of 1,000 tokens and 25 more, one each microsecond."""
    return write_trace(tmp_path / "t.jsonl", 50, 1e-3, 25)


def of(model, *args):
    return ("--model", model, "--weights", "1MB", "--variants", VARIANTS, *args)


def test_a_trace_is_replayed_in_the_room_that_weights_leave(model, trace):
    rows = rows_of(*of(model, "--memory", "21MB", "--trace", trace, *DEVICE))
    # Cheapest first: bytes of a sequence, at the peak.
    held = [int(row["held_bytes"]) / int(row["users_peak"]) for row in rows.values()]
    assert held == sorted(held) and len(rows) == 3
    contiguous, paged, quantised = (rows[v] for v in ("contiguous/f16", "paged/f16", "paged/q8_0"))
    for row in rows.values():
        assert (row["status"], row["requests"], row["refused"], row["bytes_from"], row["times_from"]) == (
            "fits", "50", "0", "computed", "assumed")
        assert int(row["held_bytes"]) <= int(row["room_bytes"]) == 20_000_000
        # 99 blocks of 100 are of 512 tokens, 51 are distinct.
        assert float(row["hit_rate_at_any"]) == pytest.approx(0.49)
    # 2,048 tokens of 1,024 bytes each are reserved for every sequence.
    assert int(contiguous["users_peak"]) == 20_000_000 // (2048 * 1024) == 9
    assert int(contiguous["users_peak"]) < int(paged["users_peak"]) < int(quantised["users_peak"])
    assert float(contiguous["slack_share"]) > 0.4 > 0.1 > float(paged["slack_share"])
    assert float(contiguous["wait_p99_s"]) > float(quantised["wait_p99_s"])


def test_swapping_takes_the_link_and_less_computing(model, tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "0,600,900\n" * 20)
    tight = of(model, "--memory", "6MB", "--trace", path, *DEVICE)
    recomputed, swapped = (rows_of(*tight, "--preempt", how)["paged/f16"] for how in ("recompute", "swap"))
    assert float(recomputed["preemptions_per_1000"]) > 0 and float(recomputed["recomputed_share"]) > 0
    assert float(swapped["recomputed_share"]) < float(recomputed["recomputed_share"])


def test_users_are_counted_by_the_closed_form(model):
    rows = rows_of(*of(model, "--memory", "9MB", "--context", "1K", "--users", "8"))
    # 1,024 tokens of 1,024 bytes: 7 fit into 8 MB, and of 34/64 as many bytes 14, beside their tables.
    assert (rows["contiguous/f16"]["status"], rows["contiguous/f16"]["users_most"]) == ("too_large", "7")
    assert rows["paged/q8_0"]["status"] == "fits" and int(rows["paged/q8_0"]["users_most"]) == 14
    assert list(rows)[0] == "paged/q8_0" and rows["paged/q8_0"]["times_from"] == ""
    # The tables of a pool without limit would take 8 GiB.
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))}
    timed = rows_of(*of(model, "--memory", "9MB", "--context", "1K", "--users", "8", *DEVICE), **limited)["contiguous/f16"]
    assert float(timed["tpot_p50_ms"]) == pytest.approx(1e3 * (1e6 + 8 * 1024 * 1024) / 1e12) and timed["times_from"] == "assumed"


def test_one_sentence_answers(model, trace):
    def sentence(*args):
        return " ".join(plan(*of(model, *args)).stdout.split())

    shown = sentence("--memory", "21MB", "--trace", trace, *DEVICE)
    assert "tiny in 21MB" in shown and "3 of 3 caches serve t.jsonl. The smallest is paged/q8_0: " in shown
    assert "Its quality is unknown here. Times are assumed for a machine of 1000 GB/s and 100 TFLOP/s" in shown
    assert "none of these caches serves 3 users of 2,048 tokens" in sentence("--memory", "2MB", "--context", "2K", "--users", "3")


QUALITY = HOME / "results" / "xeon-2core" / "quality"


def test_quality_is_looked_up_in_a_run(model):
    users = ("--context", "1K", "--users", "2", "--memory", "9MB", "--quality", QUALITY)
    variants = ("--variants", "paged/q8_0; doubling/f16; paged(block=32)/kivi(bits=2,residual=64)")
    rows = rows_of("--model", model, "--weights", "1MB", *variants, *users)
    cells = {row["variant"]: row for row in table(QUALITY / "cells.csv") if row["experiment"] == "quality"}
    for variant, cell in (("paged/q8_0", "contiguous/q8_0"), ("doubling/f16", "contiguous/f16")):
        for column, of in (("", ""), ("_ci_low", "_ci_low"), ("_ci_high", "_ci_high")):
            change = math.expm1(float(cells[cell]["loss_change" + of]))
            assert float(rows[variant]["perplexity_change" + column]) == pytest.approx(change, rel=1e-6)
        assert rows[variant]["quality_from"] == "quality: another model (6 layers), 1,024 tokens"
    kivi = rows["paged(block=32)/kivi(bits=2,residual=64)"]
    assert (kivi["quality_from"], kivi["perplexity_change"]) == ("unknown", "")
    shown = " ".join(plan("--model", model, "--weights", "1MB", *variants, *users).stdout.split())
    assert "unknown" in shown and "quality is unknown here" in shown, "the cheapest is kivi's, and the run has none"
    shown = " ".join(plan("--model", model, "--weights", "1MB", "--variants", "paged/q8_0", *users).stdout.split())
    assert "Its perplexity changes by +0.02 % (0.00 to 0.03) in quality: another model (6 layers), 1,024 tokens" in shown


def test_hit_rates_come_as_curves(model, trace, tmp_path):
    out = tmp_path / "hits.csv"
    succeeded(plan(*of(model, "--memory", "21MB", "--trace", trace, "--prefix-blocks", "512,128", "--hit-curve", out, *DEVICE)))
    rows = table(out)
    assert {row["block_tokens"] for row in rows} == {"512", "128"}
    for row in rows:
        assert 0 <= float(row["hit_rate"]) <= float(row["belady_hit_rate"]) <= float(row["hit_rate_at_any"]) <= 0.5
    last = [row for row in rows if row["block_tokens"] == "512"][-1]
    assert float(last["hit_rate"]) == float(last["hit_rate_at_any"]) == pytest.approx(0.49)


def test_a_trace_without_ids_has_no_hit_rate(model, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,10,3\n1,3000,3\n")
    rows = rows_of(*of(model, "--memory", "21MB", "--trace", path, *DEVICE))
    # The second is longer than the model's context.
    assert {(row["hit_rate"], row["refused"], row["status"]) for row in rows.values()} == {("", "1", "refuses")}


@pytest.mark.skipif(not (DATA / "traces").exists(), reason=f"no traces in {DATA} (set KVLAB_DATA)")
@pytest.mark.parametrize(("name", "requests", "hits"), [
    ("azure2023_code.csv", 8819, None), ("azure2023_conv.csv", 19366, None),
    ("mooncake_conversation.jsonl", 12031, 0.3664), ("mooncake_synthetic.jsonl", 3993, 0.6396)])
def test_the_facts_of_real_traces(name, requests, hits):
    row = rows_of("--model", "llama-3.1-8b", "--memory", "80GB", "--variants", "paged/f16", "--trace", DATA / "traces" / name,
                  "--device", "read_gbps=3350,flops=990e12")["paged/f16"]
    assert int(row["requests"]) == requests
    assert (float(row["hit_rate_at_any"]) if row["hit_rate_at_any"] else None) == (pytest.approx(hits, abs=5e-5) if hits else None)
