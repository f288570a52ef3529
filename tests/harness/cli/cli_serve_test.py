"""`experiment = "serve"`: requests answered by a model over real caches, and what can go wrong meanwhile."""

import pytest
from program import HOME, cells_of, kvlab, run, table

MODEL = HOME / "configs/models/kvlab-recall-1m"
BYTES_A_TOKEN = 6 * 2 * 2 * 32 * 2  # of the model's cache in f16

CONFIG = HOME / "tests/harness/cli/contract/serve.toml"
EIGHT = {"serve.arrivals": "poisson(200)", "serve.requests": 8, "serve.prompt": "uniform(20,40)", "serve.max_running": 4}


def served(out, **changed):
    return cells_of(CONFIG, out, {**EIGHT, **{f"serve.{name}": value for name, value in changed.items()}})


def test_all_requests_are_served_and_answered_as_alone(tmp_path):
    static, continuous = served(tmp_path / "out")
    for row in (static, continuous):
        assert (row["status"], row["requests"], row["refused"]) == ("ok", "8", "0"), row["reason"]
        assert 1 <= int(row["running_peak"]) <= 4 and float(row["served_s"]) > 0
    tokens = [float(row["served_tokens_per_s"]) * float(row["served_s"]) for row in (static, continuous)]
    assert tokens[0] == pytest.approx(tokens[1]) and 8 * 4 <= tokens[0] <= 8 * 8


def test_goodput_counts_the_requests_within_both_limits(tmp_path):
    def good_of(limit):
        return [(row["goodput_per_s"], row["requests_per_s"]) for row in served(tmp_path / limit[:9], limit=limit)]

    assert all(good == answered for good, answered in good_of("{ttft_s = 1e6, tpot_ms = 1e6}"))
    assert {good for good, _ in good_of("{tpot_ms = 1e-6}")} == {"0"}


def test_the_summary_has_what_requests_got_by_cache_and_batching(tmp_path):
    rows = served(tmp_path / "out")
    said = kvlab("summary", tmp_path / "out").stdout
    assert "8 requests of" in said and "1024 tokens" not in said
    for heading in ("requests/s", "good/s", "output tok/s", "TTFT p50/90/99, s", "TPOT p50/90/99, ms", "held"):
        assert heading in said
    for row in rows:
        (line,) = (line for line in said.splitlines() if line.startswith(f"  paged f16, batching {row['batching']} "))
        percentiles = ["/".join(f"{float(row[f'{name}_p{p}_{unit}']):.3g}" for p in (50, 90, 99)) for name, unit in (("ttft", "s"), ("tpot", "ms"))]
        assert all(text in line for text in percentiles)
    for words in ("Most requests: ", "Lowest p99 time to the first token: ", "Lowest p99 time per token: "):
        assert words + "paged f16, batching " in " ".join(said.split())


def test_requests_that_never_fit_are_refused_and_the_others_served(tmp_path):
    # Prompts of up to 80 tokens, answers of up to 8, in a context of 64.
    for row in served(tmp_path / "out", context=64, prompt="uniform(20,80)"):
        assert row["status"] == "ok", row["reason"]
        assert 0 < int(row["refused"]) < 8


def test_a_room_for_no_request_says_so(tmp_path):
    done = run(CONFIG, tmp_path / "out", {**EIGHT, "serve.room": ["20KiB"]})
    assert done.returncode == 2
    assert "none of 2 cells was measured" in done.stderr and "no room for a single sequence" in done.stderr
    assert {row["status"] for row in table(tmp_path / "out" / "cells.csv")} == {"unsupported"}


def test_a_small_room_preempts_and_changes_no_answer(tmp_path):
    room = f"{3 * 48 * BYTES_A_TOKEN}B"  # of three requests, while four run
    rows = served(tmp_path / "out", room=[room], batching=["16"], output="uniform(16,24)")
    (row,) = rows
    assert row["status"] == "ok", row["reason"]
    assert int(row["held_peak_bytes"]) <= int(row["room_bytes"])
    assert int(row["preemptions"]) > 0
