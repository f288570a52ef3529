"""`experiment = "replay"`: requests through caches' own allocators, from a config to the report's tables."""

import csv
import re

import pytest
from program import DATA, HOME, cells_of, kvlab, results_of, run, succeeded, table, write_trace

CONFIG = HOME / "configs" / "replay.toml"
SHORT = {"replay.requests": 120, "replay.memory": '["40GB"]', "replay.arrivals": '["poisson(8)"]'}
VARIANTS = ("contiguous/f16", "paged/f16", "paged/q8_0")


results = results_of(CONFIG, SHORT)


def test_the_config_that_comes_along_needs_no_other_file(results):
    rows = table(results / "cells.csv")
    assert len(rows) == 6
    for row in rows:
        assert (row["status"], row["experiment"], row["workload"], row["requests"]) == ("ok", "replay", "drawn", "120"), row["reason"]
        assert (row["counts_from"], row["times_from"], row["clusters"]) == ("computed", "assumed", "minutes")
        assert int(row["running_p50"]) <= int(row["running_p99"]) <= int(row["running_peak"])
        assert int(row["waiting_p50"]) <= int(row["waiting_p99"]) <= int(row["waiting_peak"])
        assert 0 < int(row["held_peak_bytes"]) <= int(row["room_bytes"])
        assert row["refused"] == "0" and float(row["served_s"]) > float(row["trace_s"])
        assert float(row["ttft_p50_s"]) <= float(row["ttft_p99_s"])
        assert float(row["goodput_per_s"]) == pytest.approx(float(row["good_share"]) * 120 / float(row["served_s"]))
        slack, payload = float(row["slack_mean_bytes"]), float(row["payload_mean_bytes"])
        assert float(row["fragmentation_share"]) == pytest.approx(slack / (slack + payload))
        assert row["step_p50_us"] == row["hit_rate"] == ""
    by = {row["series"]: row for row in rows}
    named = ("paged(block=16)/f16", "paged(block=128)/f16", "contiguous/f16")
    shares = [float(by[name]["fragmentation_share"]) for name in named]
    assert 0 < shares[0] < shares[1] < shares[2]


def test_stretches_of_time_add_up_to_the_cell(results):
    stretches = table(results / "replay.csv")
    for row in table(results / "cells.csv"):
        own = [stretch for stretch in stretches if stretch["cell"] == row["cell"]]
        assert 100 < len(own) <= 512
        assert float(own[-1]["time_s"]) == pytest.approx(float(row["served_s"]))
        begin, payload, most = 0.0, 0.0, 0.0
        for stretch in own:
            payload += float(stretch["payload_bytes"]) * (float(stretch["time_s"]) - begin)
            begin = float(stretch["time_s"])
            most = max(most, float(stretch["running"]))
        assert most <= int(row["running_peak"])
        assert payload <= float(row["payload_mean_bytes"]) * float(row["served_s"]) * (1 + 1e-6)


@pytest.fixture
def trace(tmp_path):
    """300 requests of 1,000 tokens and 20 more over ten minutes."""
    return write_trace(tmp_path / "requests.jsonl", 300, 2000, 20)


def of_trace(trace):
    return {"replay.trace": trace, "replay.memory": ["40GB"], "replay.arrivals": ["trace"], "replay.requests": 300}


NAMES_OF_A_PLAN = {"users_p50": "running_p50", "users_peak": "running_peak", "held_bytes": "held_peak_bytes", "hit_rate": "hit_rate_curve",
                   "seconds": "served_s", "tokens_per_s": "served_tokens_per_s"}  # fmt: skip


def test_a_trace_says_as_much_as_in_a_plan(trace, tmp_path):
    cells = cells_of(CONFIG, tmp_path / "out", of_trace(trace), {"sweep.variants": VARIANTS})
    planned = kvlab("plan", "--model", "llama-3.1-8b", "--memory", "40GB", "--trace", trace, "--variants", "; ".join(VARIANTS),
                    "--device", "read_gbps=1008,flops=165e12,link_gbps=25", "--format", "csv")  # fmt: skip
    rows = {row["variant"]: row for row in csv.DictReader(planned.stdout.splitlines())}
    assert len(cells) == 3
    for cell in cells:
        plan = rows[cell["series"]]
        names = {column: NAMES_OF_A_PLAN.get(column, column) for column in plan}
        shared = {column: name for column, name in names.items() if name in cell and column != "status"}
        assert NAMES_OF_A_PLAN.items() <= shared.items() and len(shared) > 15
        for column, name in shared.items():
            assert cell[name] == plan[column], column
        assert float(cell["ttft_p99_s_ci_low"]) <= float(cell["ttft_p99_s"]) <= float(cell["ttft_p99_s_ci_high"])
        assert float(cell["distinct_share"]) == pytest.approx(301 / 600, abs=1e-6)
    hits = table(tmp_path / "out" / "hits.csv")
    assert {row["variant"] for row in hits} == {cell["variant"] for cell in cells}
    for row in hits:
        assert float(row["hit_rate"]) <= float(row["belady_hit_rate"]) <= float(row["hit_rate_at_any"])


def test_units_of_prompts_are_shared_within_a_replay(trace, tmp_path):
    shared = {"replay.share": 512, "sweep.variants": ["contiguous/f16", "paged/f16", "paged(block=32)/kivi(bits=2)"]}
    contiguous, paged, kivi = cells_of(CONFIG, tmp_path / "out", of_trace(trace), shared)
    assert contiguous["hit_rate"] == kivi["hit_rate"] == "" and float(contiguous["cached_mean_bytes"]) == 0
    # Requests come one by one, and all but the first find the 512 tokens that all begin with.
    assert float(paged["hit_rate"]) == pytest.approx(512 * 299 / (1000 * 300))
    assert float(paged["ttft_p50_s"]) < float(contiguous["ttft_p50_s"])


def test_a_prompt_in_common_is_held_once(tmp_path):
    settings = {**SHORT, "replay.prefix": 1000, "replay.share": 16, "replay.prompt": '"uniform(8,15)"', "replay.output": '"uniform(50,90)"',
                "sweep.variants": '["paged/f16"]'}  # fmt: skip
    held = {}
    for share in (0, 16):
        (held[share],) = cells_of(CONFIG, tmp_path / str(share), {**settings, "replay.share": share})
    # 62 whole units of 16; the first request finds none of them, nor do those that come while it is computed.
    found = float(held[16]["hit_rate"]) * (1000 + float(held[16]["prompt_p50_tokens"]) - 1000)
    assert held[0]["hit_rate"] == "" and 0.95 * 992 < found <= 992
    assert held[0]["hit_rate_at_any"] == held[16]["hit_rate_at_any"]
    assert float(held[16]["payload_mean_bytes"]) < 0.6 * float(held[0]["payload_mean_bytes"])
    assert int(held[16]["held_peak_bytes"]) < int(held[0]["held_peak_bytes"])


MODEL = HOME / "results" / "epyc-2core" / "model"


def measured(tmp_path, machine=""):
    return run(CONFIG, tmp_path / "out", {
        "model.preset": "llama-3.2-1b", "replay.memory": ["8GB"], "replay.arrivals": ["poisson(0.02)"], "replay.requests": 40,
        "replay.prompt": "uniform(1024,2048)", "replay.output": "uniform(8,16)", "sweep.variants": ["contiguous/f16", "paged/f16"],
        "replay.device": f'{{{machine}measured="{MODEL}"}}'})  # fmt: skip


def test_steps_come_from_cells_that_were_measured(tmp_path):
    succeeded(measured(tmp_path, "read_gbps=20,flops=1e11,"))
    contiguous, paged = table(tmp_path / "out" / "cells.csv")
    assert paged["status"] == "unsupported" and "0 cells of decode steps of paged/f16 over 32/8 heads of 64" in paged["reason"]
    assert contiguous["times_from"] == "assumed" and 0 < float(contiguous["clock_assumed_share"]) < 1
    assert 0 < float(contiguous["clock_residual"]) < 0.5
    # Most steps have one sequence, and rows between those of 1K and 128K tokens: as long as the cells' steps.
    steps = [float(row["step_p50_us"]) for row in table(MODEL / "cells.csv")
             if row["variant"] == "contiguous/f16" and row["batch"] == "1" and int(row["seq_len"]) <= 4096]  # fmt: skip
    assert 0.7 * min(steps) < 1e3 * float(contiguous["tpot_p50_ms"]) < 1.3 * max(steps)


def test_a_clock_without_a_stated_machine_needs_all_of_a_step(tmp_path):
    done = measured(tmp_path)
    assert done.returncode == 2 and "none of 2 cells was measured" in done.stderr
    contiguous, _ = table(tmp_path / "out" / "cells.csv")
    assert contiguous["status"] == "unsupported" and "no times of prompts" in contiguous["reason"]


def replayed_small(tmp_path, variants, replay, layers=6):
    """Requests to a model of the size of the one that comes along."""
    model = f"{{layers={layers},q_heads=4,kv_heads=2,head_dim=32}}"
    return run(CONFIG, tmp_path / "out", {"model": model, "sweep.variants": variants, **{f"replay.{key}": value for key, value in replay.items()}})


def test_a_clock_of_whole_steps_and_prompts_assumes_nothing(tmp_path):
    few = {"memory": "3GB", "weights": "4MB", "arrivals": "poisson(20)", "requests": 50, "prompt": "uniform(176,400)", "output": "uniform(2,8)",
           "max_running": 4, "device": f'{{measured="{MODEL.parent / "model_small"}"}}'}  # fmt: skip
    succeeded(replayed_small(tmp_path, ["contiguous"], few))
    (row,) = table(tmp_path / "out" / "cells.csv")
    assert row["status"] == "ok" and row["times_from"] in ("measured", "computed")
    assert float(row["clock_assumed_share"]) == 0 and float(row["clock_beyond_share"]) < 0.9
    # A prompt of 431 tokens has taken 15 ms there.
    assert 0.001 < float(row["ttft_p50_s"]) < 0.1


SERVE = MODEL.parent / "serve"
SERVED = ("paged(block=32)/f16", "paged(block=32)/q8_0", "paged(block=32)/q4_0", "paged(block=32)/kivi(bits=2)")


# The requests of configs/serve.toml's first table on the clocks of the run that served them.
SERVED_REQUESTS = {
    "memory": "30MB", "weights": "4600KB", "arrivals": "poisson(120)", "requests": 64, "prompt": "zipf(32,512)", "output": "uniform(8,96)",
    "step_tokens": [64, 128, 256], "max_running": 16, "device": f'{{measured="{SERVE}",link_gbps=25}}',
}  # fmt: skip


def test_a_served_clock_predicts_other_batchings(tmp_path):
    succeeded(replayed_small(tmp_path, SERVED, SERVED_REQUESTS))
    # Each cache's one clock comes from one batching; the chunks of the others are what it predicts.
    measured_cells = {(row["series"], row["batching"]): row for row in table(SERVE / "cells.csv") if row["sharing"] == "off"
                      and int(row["room_bytes"]) > 2_000_000}  # fmt: skip
    rows = table(tmp_path / "out" / "cells.csv")
    assert len(rows) == 12
    for row in rows:
        assert (row["status"], row["times_from"]) == ("ok", "computed"), row["reason"]
        ran = measured_cells[row["series"], row["step_tokens"]]
        assert row["running_peak"] == ran["running_peak"] == "16"
        for column in ("tpot_p50_ms", "served_s"):
            assert 0.85 < float(row[column]) / float(ran[column]) < 1.15, (row["cell"], column)


def test_only_what_was_served_has_a_clock(tmp_path):
    done = replayed_small(tmp_path, ["paged(block=32)/f16", "paged(block=32)/fp8"], SERVED_REQUESTS)
    assert done.returncode == 0
    for served, other in zip(*[iter(table(tmp_path / "out" / "cells.csv"))] * 2):
        assert served["status"] == "ok" and other["status"] == "unsupported"
        assert "has served no request with paged(block=32)/fp8 over 6 layers of 4/2 heads of 32" in other["reason"]


@pytest.mark.parametrize(("layers", "preempt", "reason"), [
    (5, "recompute", "has served no request with paged(block=32)/f16 over 5 layers of 4/2 heads of 32"),
    (6, "swap", "has no times of swapping: its requests were recomputed"),
])
def test_another_model_and_swapping_have_no_served_clock(layers, preempt, reason, tmp_path):
    assert replayed_small(tmp_path, ["paged(block=32)/f16"], {**SERVED_REQUESTS, "preempt": preempt}, layers).returncode == 2
    for row in table(tmp_path / "out" / "cells.csv"):
        assert row["status"] == "unsupported" and reason in row["reason"]


@pytest.mark.parametrize("name", ["azure2023_conv.csv", "mooncake_conversation.jsonl"])
def test_public_traces_are_replayed(name, tmp_path):
    path = DATA / "traces" / name
    if not path.exists():
        pytest.skip(f"no traces in {DATA} (set KVLAB_DATA)")
    settings = {"replay.memory": ["80GB"], "replay.requests": 1500, "sweep.variants": ["paged/f16", "paged/q8_0"]}
    for row in cells_of(CONFIG, tmp_path / "out", of_trace(path), settings):
        assert row["status"] == "ok" and row["requests"] == "1500"
        assert not re.search(r"/\w+/", row["workload"])
