"""Replays and serving by formula: two machines, a variant that reserves and two that page, a trace with ids of blocks; three ways of
batching."""

from __future__ import annotations

from synthetic_shape import cell_without_times

RUNNING = {"contiguous/f16/full": 10, "paged(block=16)/f16/full": 40, "paged(block=16)/q8_0/full": 75}
MACHINES = {"24GB": 1, "40GB": 2}


def replay_cells() -> list[dict]:
    cells = []
    for machine, times in MACHINES.items():
        for variant, running in RUNNING.items():
            waiting = max(0, 80 - running * times)
            cell = cell_without_times(
                "replay", variant, 8192, "requests.jsonl", arrivals="poisson(2)", machine=machine, step_tokens=2048, requests=100,
                refused=0, running_p50=running * times, running_p99=running * times + 3, running_peak=running * times + 5,
                waiting_p50=waiting // 2, waiting_p99=waiting, waiting_peak=waiting + 1, preemptions=7, preemptions_per_1000=70,
                held_peak_bytes=1 << 30, payload_mean_bytes=5e8, slack_mean_bytes=5e8 / running, other_mean_bytes=1e5,
                fragmentation_share=1 / (1 + running), ttft_p99_s=waiting / 4, ttft_p99_s_ci_low=waiting / 5,
                ttft_p99_s_ci_high=waiting / 3, tpot_p99_ms=20, good_share=0.9, good_share_ci_low=0.8, good_share_ci_high=0.95,
                goodput_per_s=1.8, times_from="assumed", counts_from="computed", hit_rate_curve=0.3, hit_rate_at_any=0.4,
            )  # fmt: skip
            cells.append({**cell, "cell": f"{cell['cell']}-{machine}", "batch": 256, "bytes_payload": ""})
    return cells


def serve_cells() -> list[dict]:
    cells = []
    for at, batching in enumerate(("static", "whole", "64")):
        for variant, running in RUNNING.items():
            times = {"ttft_p99_s": 3 / running / (1 + at), "tpot_p99_ms": 2 + at + running / 100}
            ends = {f"{name}_{end}": value * factor for name, value in times.items() for end, factor in (("ci_low", 0.8), ("ci_high", 1.3))}
            replayed = {f"replay_{name}": 0.9 * value for name, value in times.items()}
            cell = cell_without_times(
                "serve", variant, 1024, "model", arrivals="poisson(20)", batching=batching, running_mean=running / 10,
                payload_mean_bytes=2e6 + running, slack_mean_bytes=1e6 / running, other_mean_bytes=1e4, cached_mean_bytes=500.0 * at,
                **times, **ends, **replayed,
            )  # fmt: skip
            cells.append({**cell, "cell": f"{cell['cell']}-{batching}", "batch": 16, "bytes_payload": ""})
    return cells


def speculate_cells() -> list[dict]:
    cells = []
    for tokens in (2, 8):
        for variant, share in {"contiguous/f16/full": 1.0, "contiguous/q4_0/full": 0.95}.items():
            accepted = share ** tokens
            cell = cell_without_times(
                "speculate", variant, 192, "model", proposed_tokens=tokens, acceptance=accepted,
                acceptance_ci_low=0.9 * accepted, acceptance_ci_high=min(1.0, 1.1 * accepted),
            )  # fmt: skip
            cells.append({**cell, "cell": f"{cell['cell']}-{tokens}", "batch": 16})
    return cells


def moment_rows(cells) -> list[dict]:
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "time_s": 10 * (at + 1), "running": cell["running_p50"] * at / 10,
         "waiting": cell["waiting_p99"] * at / 12, "payload_bytes": 1e7 * at, "slack_bytes": 1e7 * at / RUNNING[cell["variant"]],
         "other_bytes": 1e5, "cached_bytes": 1e6 * at}
        for cell in cells if cell["experiment"] == "replay" for at in range(10)
    ]  # fmt: skip


def hit_rows(cells) -> list[dict]:
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "capacity_bytes": capacity * 1000, "block_tokens": tokens,
         "capacity_blocks": capacity, "hit_rate": 0.4 * capacity / 1024, "belady_hit_rate": 0.4 * (capacity / 1024) ** 0.5,
         "hit_rate_at_any": 0.4}
        for cell in cells if cell["experiment"] == "replay" and cell["machine"] == "24GB"
        for tokens in (128, 512) for capacity in (1, 32, 1024)
    ]  # fmt: skip
