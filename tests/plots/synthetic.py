"""Results folders made up by formula: obviously synthetic, and small enough for a temporary folder."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path

from synthetic_models import (
    batch_cells,
    beside_cells,
    budget_cells,
    checkpoint_cells,
    eval_cells,
    head_rows,
    position_rows,
    prefill_cells,
    prediction_cells,
    sensitivity_cells,
    stream_cells,
    stream_rows,
    task_cells,
    text_rows,
    whole_model_cells,
)
from synthetic_shape import HEAD_DIM, KV_HEADS, LAYERS, MODEL_LAYERS, Q_HEADS, described, in_words, with_stages
from synthetic_peers import peer_cells
from synthetic_replay import hit_rows, moment_rows, replay_cells, serve_cells, speculate_cells
from synthetic_tiers import tier_cells

# name: (bytes of an element, relative error, microseconds a row)
SYNTHETIC = {
    "contiguous/f32/full": (4, 3e-7, 0.020),
    "doubling/f32/full": (4, 3e-7, 0.021),
    "doubling(read=copy)/f32/full": (4, 3e-7, 0.055),
    "concat/f32/full": (4, 3e-7, 0.090),
    "contiguous/f16/full": (2, 4e-4, 0.012),
    "contiguous/q8_0/full": (1.0625, 6e-3, 0.014),
}
MANY = {
    f"{placement}/{codec}/{retention}": (size * (1 if retention == "full" else 0.4), error * scale, time * size / 4)
    for placement, time in (("contiguous", 0.02), ("paged(block=16)", 0.024), ("segmented(rows=256)", 0.022))
    for codec, size, error in (
        ("f32", 4, 3e-7), ("f16", 2, 4e-4), ("q8_0", 1.0625, 6e-3), ("q4_0", 0.5625, 9e-2),
        ("kivi(bits=4,group=32,residual=128)", 0.65, 7e-2),
    )
    for retention, scale in (("full", 1), ("ring(window=1020,sinks=4)", 40))
}  # fmt: skip


# A sweep over one number, beside a baseline without it.
SWEPT = {
    "contiguous/f32/full": (4, 3e-7, 0.02),
    **{f"paged(block={block}{order})/f32/full": (4 + 1 / block, 3e-7, 0.02 + 0.01 / block + 0.005 * bool(order))
       for block in (1, 8, 64) for order in ("", ",order=shuffled")},
}  # fmt: skip


# With the microseconds of a step beside its rows': lines that cross at 1,000, 2,571 and 6,500 tokens, but for noise.
CROSSING = {
    "contiguous/f32/full": (4, 3e-7, 0.020, 4), "contiguous/f16/full": (2, 4e-4, 0.010, 14),
    "contiguous/q8_0/full": (1.0625, 6e-3, 0.006, 40),
}  # fmt: skip


def synthetic_run(folder: Path, variants=SYNTHETIC, lengths=(256, 512, 1024, 2048, 4096), batches=(1,),
                  workloads=("gaussian",), growth_to=0, growing=4, later=False, one_thread=False, tiers=False,
                  replays=False, beside=False, cpu="Synthetic CPU <b>0</b>") -> Path:  # fmt: skip
    """Writes a results folder by formula: a cell a variant, length, batch and workload, and optionally a growth run of
    the first `growing` variants and the experiments that came later. With `tiers` also other engines; `beside`: losses
    compared with a variant's."""
    draw = random.Random(1)
    cells, steps = [], []
    for batch in batches:
        for workload in workloads:
            for length in lengths:
                for variant in variants:
                    cells.append(synthetic_cell(draw, variants, variant, "decode", length, batch, workload))
                again = dict(cells[-len(variants)], cell=f"null-{batch}-{workload}-{length}", verdict="aa_test")
                cells.append(
                    dict(
                        again, versus=again["variant"], ratio_p50=1.001, ratio_ci_low=0.99, ratio_ci_high=1.01
                    )
                )
    for variant in list(variants)[:growing] if growth_to else []:
        for length in {growth_to // 2, growth_to}:
            cell = synthetic_cell(draw, variants, variant, "growth", length, 1, workloads[0])
            own = synthetic_steps(draw, variants, variant, cell["cell"], length)
            cells.append(cell | append_totals(own, next((c for c in cells if c["experiment"] == "growth" and c["seq_len"] == length), None)))
            steps += own
    cells += (tier_cells() + peer_cells() if tiers else []) + (replay_cells() + serve_cells() + speculate_cells() if replays else [])
    cells += beside_cells(workloads[0]) if beside else []
    if one_thread:
        cells += [one_thread_cell(cell) for cell in list(cells) if cell["experiment"] == "decode"]
    cells = with_later(cells, workloads[0], lengths) if later else cells
    for status, reason in (
        ("unsupported", "h2o overwrites single tokens inside a <script>alert(1)</script> group"),
        ("out_of_memory", "needs 96 GiB, 7.6 GiB free"),
        ("failed", "relative L2 error 3.1e-2 is above the bound 1e-2"),
    ):
        cells.append(dict(cells[0], cell=status, variant=f"paged(block=16)/{status}", status=status, reason=reason,
                          step_p50_us="", verdict=""))  # fmt: skip
    cells = [{**with_stages(cell), "label": in_words(cell["variant"])} for cell in cells]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "columns.json").write_text(json.dumps(described()))
    write_csv(folder / "cells.csv", list(dict.fromkeys(name for cell in cells for name in cell)), cells)
    tables = {"growth.csv": steps}
    if later:
        tables |= {"positions.csv": position_rows(cells) + stream_rows(cells), "heads.csv": head_rows(cells), "texts.csv": text_rows()}
    if replays:
        tables |= {"replay.csv": moment_rows(cells), "hits.csv": hit_rows(cells)}
    for name, rows in tables.items():
        if rows:
            write_csv(folder / name, list(rows[0]), rows)
    env = {
        "kvlab": {"version": "0.0-synthetic", "git_dirty": False},
        "cpu": {"model": cpu, "cores": 2, "l2_bytes": 2 << 20},
        "model": {"name": "made-up model"}, "config": {"name": "synthetic"}, "memory_bytes": 8 << 30,
        "ceilings": {"hot_gbps": 40.0},
    }  # fmt: skip
    (folder / "env.json").write_text(json.dumps(env))
    (folder / "config.toml").write_text("# made up by tests/plots/synthetic.py\nlengths = [256, 512]\n")
    return folder


def with_later(cells: list[dict], workload: str, lengths) -> list[dict]:
    """The cells, and those of the experiments that came later."""
    for of_experiment in (budget_cells, prefill_cells, batch_cells, prediction_cells, sensitivity_cells, stream_cells, task_cells):
        cells = cells + of_experiment(workload)
    cells = cells + checkpoint_cells(workload, lengths) + eval_cells() + whole_model_cells()
    return [with_roofline(cell) for cell in cells]


def synthetic_cell(draw, variants, variant, experiment, length, batch, workload) -> dict:
    size, error, per_row, *beside = variants[variant]
    payload = 2 * LAYERS * KV_HEADS * HEAD_DIM * length * batch * size
    step = (sum(beside or [4]) + per_row * length * batch) * draw.uniform(0.97, 1.03)
    ratio = per_row / next(iter(variants.values()))[2]
    first = variant == next(iter(variants))
    verdict = (
        "baseline" if first else "ambiguous" if abs(ratio - 1) < 0.1 else "slower" if ratio > 1 else "faster"
    )
    share = 0.9 - 0.1 * size
    return {
        "cell": f"{experiment}-{variant}-{length}-{batch}-{workload}", "variant": variant, "device": "cpu",
        "threads": 2, "experiment": experiment, "phase": experiment, "workload": workload, "layers": LAYERS,
        "q_heads": Q_HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "batch": batch, "seq_len": length,
        "status": "ok", "kernel": "spans/AVX2", "bytes_payload": int(payload),
        "bytes_metadata": int(payload * 0.06 * (size < 2)),
        "bytes_slack": int(payload * 0.5 * variant.startswith("doubling")),
        "bytes_workspace_peak": int(payload * variant.startswith("concat")) + 4096, "bytes_predicted": int(payload),
        "peak_bytes": int(payload * (2 if variant.startswith("concat") else 1.6)) + 4096,
        "model_layers": MODEL_LAYERS, "model_bytes": int(payload) * MODEL_LAYERS // LAYERS,
        "step_p50_us": step, "step_p90_us": step * 1.1, "step_p99_us": step * 1.4, "step_max_us": step * 3,
        "step_ci_low_us": step * 0.96, "step_ci_high_us": step * 1.05, "cold_attend_p50_us": step * 1.6,
        "read_gbps": 40 * share, "ceiling_gbps": 40, "ceiling_share": share, "cold_read_gbps": 12 * share * 0.8,
        "cold_ceiling_gbps": 12, "cold_ceiling_share": share * (0.6 + 0.03 * math.log2(length)),
        "err_max_abs": error * 4, "err_rel_l2": error, "err_cosine": 1 - error**2, "err_attn_kl": error**2,
        "versus": "" if first else next(iter(variants)), "verdict": verdict, "ratio_p50": ratio,
        "ratio_ci_low": ratio * 0.97, "ratio_ci_high": ratio * 1.04,
    }  # fmt: skip


def with_roofline(cell: dict) -> dict:
    """A peak at which f32 is memory-bound, and all else compute-bound when hot."""
    if cell["experiment"] != "decode" or not cell.get("cold_ceiling_share"):
        return cell
    hot = "memory" if "f32" in cell["variant"] else "compute"
    share = cell["cold_ceiling_share"]
    roofline = {"cold_bound": "memory", "cold_bound_us": 7, "cold_bound_share": share, "multiply_add_peak_per_s": 1e11}
    if cell["ceiling_share"]:
        share = cell["ceiling_share"] + (0.2 if hot == "compute" else 0)
        roofline |= {"bound": hot, "bound_us": 7, "bound_share": share}
    ratio = cell.get("ratio_p50") or ""
    return {**cell, **roofline, "cold_ratio_p50": ratio and 0.9 * ratio}


def one_thread_cell(cell: dict) -> dict:
    """The same shape with one thread, of which only cold reads were measured."""
    shape = ("layers", "q_heads", "kv_heads", "head_dim", "batch", "seq_len", "threads")
    kept = {
        name: value
        for name, value in cell.items()
        if isinstance(value, str) or name.startswith("cold") or name in shape
    }
    low, high = (factor * cell["cold_attend_p50_us"] for factor in (0.95, 1.1))
    return {**dict.fromkeys(cell, ""), **kept, "threads": 1, "cell": f"{cell['cell']}-t1", "cold_ci_low_us": low,
            "cold_ci_high_us": high}  # fmt: skip


def append_totals(steps, first) -> dict:
    """The columns of a growth cell's total time of appends; `first`: the baseline's cell, None if it is this one."""
    sums = [sum(step["append_us"] + step["view_us"] for step in steps if step["repetition"] == repetition) for repetition in (0, 1)]
    total = {"append_total_us": sum(sums) / 2, "append_total_ci_low_us": min(sums), "append_total_ci_high_us": max(sums)}
    if first is None:
        return total
    ratio = total["append_total_us"] / first["append_total_us"]
    return total | {"append_total_ratio_p50": ratio, "append_total_ratio_ci_low": 0.9 * ratio, "append_total_ratio_ci_high": 1.2 * ratio}


def synthetic_steps(draw, variants, variant, cell, until) -> list[dict]:
    steps = []
    for repetition in range(2):
        for token in range(1, until + 1):
            time = (4 + variants[variant][2] * token) * draw.uniform(0.9, 1.15)
            append = (0.2 + 0.01 * token * (variant.startswith("concat"))) * (1 + 0.1 * repetition)
            if variant.startswith("paged"):
                append += variants[variant][2]
            if variant.startswith("doubling") and token & (token - 1) == 0:
                append += 2 + 0.4 * token
            view = 0.05 + 0.008 * token * ("read=copy" in variant)
            steps.append(
                {"cell": cell, "variant": variant, "repetition": repetition, "token": token,
                 "append_us": append, "view_us": view, "step_us": time + append + view}
            )  # fmt: skip
    return steps


def write_csv(path: Path, columns: list[str], rows: list[dict]):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
