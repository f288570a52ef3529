"""`experiment = "replay"`: requests through caches' own allocators, from a config to the report's tables."""

import csv
import json
import re

import pytest
from program import DATA, HOME, assert_refused, kvlab, run, table

CONFIG = HOME / "configs" / "replay.toml"
SHORT = {"replay.requests": 120, "replay.memory": '["40GB"]', "replay.arrivals": '["poisson(8)"]'}
VARIANTS = ("contiguous/f16", "paged/f16", "paged/q8_0")


def words(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("replay") / "out"
    done = run(CONFIG, out, *words(SHORT))
    assert done.returncode == 0, done.stderr
    return out


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
    """300 requests of 1,000 tokens and 20 more over ten minutes; they share their first block of 512."""
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"timestamp": 2000 * i, "input_length": 1000, "output_length": 20, "hash_ids": [0, i + 1]}) + "\n"
                            for i in range(300)))
    return path


def test_a_trace_says_as_much_as_in_a_plan(trace, tmp_path):
    settings = {"replay.trace": trace, "replay.memory": '["40GB"]', "replay.arrivals": '["trace"]',
                "sweep.variants": json.dumps(VARIANTS)}  # fmt: skip
    settings["replay.requests"] = 300
    done = run(CONFIG, tmp_path / "out", *words(settings))
    assert done.returncode == 0, done.stderr
    planned = kvlab("plan", "--model", "llama-3.1-8b", "--memory", "40GB", "--trace", trace, "--variants", "; ".join(VARIANTS),
                    "--device", "read_gbps=1008,flops=165e12,link_gbps=25", "--format", "csv")  # fmt: skip
    rows = {row["variant"]: row for row in csv.DictReader(planned.stdout.splitlines())}
    cells = table(tmp_path / "out" / "cells.csv")
    assert len(cells) == 3
    for cell in cells:
        plan = rows[cell["series"]]
        for column, of_plan in (("running_peak", "users_peak"), ("pool_blocks", "pool_blocks"), ("held_peak_bytes", "held_bytes"),
                                ("ttft_p99_s", "ttft_p99_s"), ("tpot_p99_ms", "tpot_p99_ms"), ("hit_rate_curve", "hit_rate"),
                                ("hit_rate_at_any", "hit_rate_at_any")):  # fmt: skip
            assert cell[column] == plan[of_plan], column
        assert float(cell["ttft_p99_s_ci_low"]) <= float(cell["ttft_p99_s"]) <= float(cell["ttft_p99_s_ci_high"])
        assert float(cell["distinct_share"]) == pytest.approx(301 / 600, abs=1e-6)
    hits = table(tmp_path / "out" / "hits.csv")
    assert {row["variant"] for row in hits} == {cell["variant"] for cell in cells}
    for row in hits:
        assert float(row["hit_rate"]) <= float(row["belady_hit_rate"]) <= float(row["hit_rate_at_any"])


def test_an_interrupted_run_goes_on(results):
    before = (results / "cells.csv").read_text()
    done = run(CONFIG, results, "--resume", *words(SHORT))
    assert done.returncode == 0, done.stderr
    assert (results / "cells.csv").read_text() == before


@pytest.mark.parametrize("name", ["azure2023_conv.csv", "mooncake_conversation.jsonl"])
def test_public_traces_are_replayed(name, tmp_path):
    path = DATA / "traces" / name
    if not path.exists():
        pytest.skip(f"no traces in {DATA} (set KVLAB_DATA)")
    settings = {"replay.trace": path, "replay.memory": '["80GB"]', "replay.arrivals": '["trace"]', "replay.requests": 1500,
                "sweep.variants": '["paged/f16","paged/q8_0"]'}  # fmt: skip
    done = run(CONFIG, tmp_path / "out", *words(settings))
    assert done.returncode == 0, done.stderr
    for row in table(tmp_path / "out" / "cells.csv"):
        assert row["status"] == "ok" and row["requests"] == "1500"
        assert not re.search(r"/\w+/", row["workload"])


@pytest.mark.parametrize(("changed", "parts"), [
    ({"replay.memory": '["12GB"]'}, ["memory 12GB has no room for caches"]),
    ({"replay.memory": '["12 parsecs"]'}, ["replay.memory", "12 parsecs"]),
    ({"replay.arrivals": '["poison(3)"]'}, ["[replay]", "'poison(3)'", "poisson(2.5)"]),
    ({"replay.arrivals": '["trace"]'}, ["arrivals \"trace\"", "none is given"]),
    ({"replay.trace": "absent.csv"}, ["absent.csv"]),
    ({"replay.device": "{read_gbps=1}"}, ["replay.device", "needs read_gbps and flops"]),
    ({"replay.device": "{flop=1}"}, ["flop"]),
    ({"replay.device": '{read_gbps=1,flops=1,measured="results"}'}, ["measured"]),
    ({"replay.preempt": "drop"}, ["replay.preempt", "recompute, swap"]),
    ({"replay.preempt": "swap", "replay.device": "{read_gbps=1,flops=1}"}, ["link_gbps"]),
    ({"replay.prompt": "zipf(9)"}, ["replay.prompt", "zipf(9)"]),
    ({"replay.prefix_blocks": "[16]"}, ["prefix_blocks", "needs a trace"]),
    ({"replay.limit": "{ttft=1}"}, ["ttft"]),
])
def test_mistakes_are_refused(changed, parts, tmp_path):
    done = run(CONFIG, tmp_path / "out", *words({**SHORT, **changed}))
    assert_refused(done, *parts)
    assert not (tmp_path / "out").exists()
