"""Results folders made up from columns.json: obviously synthetic, and small enough for a temporary folder.

A cell has the axes and the effects that are planted here. Every other number that its experiment alone writes, and every interval, is
made up from the column's name, so that no two columns agree. An experiment that has no table here has two variants at two lengths.
"""

import csv
import json
import math
import random
import re
from functools import cache
from pathlib import Path

import polars as pl

HOME = Path(__file__).resolve().parents[2]
SHAPE = {"layers": 2, "q_heads": 8, "kv_heads": 4, "head_dim": 64}
MODEL_LAYERS, ROW = 32, 2 * 2 * 4 * 64  # ROW: values of a token, K and V of all layers


def committed() -> list[dict]:
    """columns.json as the program has written it in all committed folders together."""
    found: dict[str, dict] = {}
    for path in sorted(HOME.glob("results/*/*/columns.json")):
        for entry in json.loads(path.read_text()):
            writers = {*entry.get("experiments", ()), *found.get(entry["name"], {}).get("experiments", ())}
            found.setdefault(entry["name"], {}).update(entry | {"experiments": sorted(writers)})
    return list(found.values())


COLUMNS = {entry["name"]: entry for entry in committed()}
AXES = [name for name, entry in COLUMNS.items() if entry.get("axis") or entry.get("arm")]
EXPERIMENTS = sorted({experiment for entry in COLUMNS.values() for experiment in entry["experiments"]})
SERVING = ("replay", "serve", "speculate")
LATER = (*(name for name in EXPERIMENTS if name not in ("decode", "growth", *SERVING)), "eval")

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
F32, F16, Q8 = "contiguous/f32/full", "contiguous/f16/full", "contiguous/q8_0/full"

# The program's description of a variant, the one that knows the form of a spec here.
STAGES = ["placement", "codec", "retention", "selection", "layer_specs", "oracle", "bits_per_value"]
SELECTIONS, CODECS = {"all", "quest", "topk"}, {"f32", "f16", "bf16", "q8_0", "q4_0", "fp8", "mxfp8", "token", "kivi"}
BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q4_0": 4.5, "token(bits=4)": 4.25, "token(bits=2)": 2.25,
        "kivi(bits=4,group=32,residual=128)": 5}  # fmt: skip
NO_CACHE = ("recompute", "no_cache", "padded", "unpadded")


def with_stages(cell: dict) -> dict:
    variant = cell["variant"]
    spec, _, layers = variant.partition(" + ")
    placement, *rest = re.split(r"/(?![^(]*\))", spec)
    if cell.get("peer") or placement.startswith(NO_CACHE):
        codec = rest[0] if cell.get("peer") and rest and rest[0] in BITS else ""
        return {**cell, **dict.fromkeys(STAGES, ""), "bits_per_value": None, "codec": codec}
    found = {"codec": "f32", "retention": "full", "selection": "all"}
    for part in rest:
        name = part.partition("(")[0]
        found["selection" if name in SELECTIONS else "codec" if name in CODECS else "retention"] = part
    return {**cell, "placement": placement, **found, "layer_specs": layers,
            "oracle": "reads every row to choose" if found["selection"].startswith("topk") else None, "bits_per_value": BITS.get(found["codec"])}


def in_words(variant: str) -> str:
    """The label that the program would write, for these tests: the stages that are no defaults, with spaces between."""
    cell = with_stages({"variant": variant})
    said = [cell[stage] for stage, usual in (("codec", ""), ("retention", "full"), ("selection", "all")) if cell[stage] not in (usual, "")]
    return " ".join(filter(None, [cell["placement"], *said, cell["layer_specs"]])) or variant


def learn_names(names, labels={}, series={}) -> None:
    """The state after a folder with these variants has been read."""
    from columns import Column
    from known import learn

    columns = {
        name: Column(name, entry["type"], is_axis=bool(entry.get("axis")), title=entry.get("title", ""), is_arm=bool(entry.get("arm")),
                     heading=entry.get("heading", "")) for name, entry in COLUMNS.items()
    }  # fmt: skip
    learn(pl.DataFrame([with_stages({"variant": name, "label": labels.get(name), "series": series.get(name, name)}) for name in ["contiguous", *names]], infer_schema_length=None), columns)


def cell(experiment: str, variant: str, length: int, **planted) -> dict:
    """A cell with what is planted, the defaults of its axes, and what nobody planted: intervals, and its experiment's own numbers."""
    made = {
        "variant": variant, "device": "cpu", "threads": 2, "experiment": experiment, "phase": "decode", "workload": "gaussian", **SHAPE,
        "batch": 1, "seq_len": length, "status": "ok", "bytes_payload": 1000, "bytes_predicted": 1010, "bytes_metadata": 0, "bytes_slack": 0,
        "bytes_workspace_peak": 0, "series": variant, **planted,
    }  # fmt: skip
    made["cell"] = "-".join([experiment, variant, *(str(made[axis]) for axis in AXES if made.get(axis) not in (None, "", experiment))])
    own, ends = own_numbers(experiment)
    for name, entry in own.items():
        drawn = random.Random(f"{name} of {made['cell']}").uniform(0.5, 1)
        made.setdefault(name, round(1000 * drawn) if entry["type"] == "integer" else drawn if entry["unit"] in ("", "1") else 10 * drawn)
    for name, (share, names) in ends.items():
        value = next((made[of] for of in names if made.get(of) not in (None, "")), None)
        if value is not None:
            made.setdefault(name, value + share * abs(value))
    return with_stages(made) | {"label": in_words(variant)}


@cache
def own_numbers(experiment: str) -> tuple[dict, dict]:
    """The numbers that few others write, none of steps; and the ends of intervals: how far from what they are of, and its possible names."""
    own, ends = {}, {}
    for name, entry in COLUMNS.items():
        if entry["type"] == "text" or experiment not in entry["experiments"]:
            continue
        if interval := re.fullmatch(r"(.*)_ci_(low|high)(.*)", name):
            before, end, after = interval.groups()
            special = {"err": "err_rel_l2", "cold": "cold_attend_p50_us"}.get(before, "")
            ends[name] = {"low": -0.03, "high": 0.04}[end], (f"{before}_p50{after}", before + after, special)
        elif experiment not in ("decode", "growth") and len(entry["experiments"]) < 4 and name not in AXES:
            own[name] = entry
    return own, ends


def decode_cells(variants, lengths, batches, workloads) -> list[dict]:
    draw, cells = random.Random(1), []
    for batch in batches:
        for workload in workloads:
            for length in lengths:
                cells += [timed_cell(draw, variants, variant, "decode", length, batch, workload) for variant in variants]
                first = cells[-len(variants)]
                cells.append({**first, "cell": f"null-{first['cell']}", "verdict": "aa_test", "versus": first["variant"], "ratio_p50": 1.001,
                              "ratio_ci_low": 0.99, "ratio_ci_high": 1.01})  # fmt: skip
    return cells


def timed_cell(draw, variants, variant, experiment, length, batch, workload) -> dict:
    size, error, per_row, *beside = variants[variant]
    first = next(iter(variants))
    payload = int(ROW * length * batch * size)
    metadata, slack = int(payload * 0.06 * (size < 2)), int(payload * 0.5 * variant.startswith("doubling"))
    step = (sum(beside or [4]) + per_row * length * batch) * draw.uniform(0.97, 1.03)
    ratio = per_row / variants[first][2]
    verdict = "baseline" if variant == first else "ambiguous" if abs(ratio - 1) < 0.1 else "slower" if ratio > 1 else "faster"
    share, hot = 0.9 - 0.1 * size, "memory" if "f32" in variant else "compute"  # a peak at which only f32 is memory-bound when hot
    cold = share * (0.6 + 0.03 * math.log2(length))
    roofline = {"bound": hot, "bound_us": 7, "bound_share": share + 0.2 * (hot == "compute"), "cold_bound": "memory", "cold_bound_us": 7,
                "cold_bound_share": cold, "multiply_add_peak_per_s": 1e11, "cold_ratio_p50": 0.9 * ratio}  # fmt: skip
    return cell(
        experiment, variant, length, batch=batch, workload=workload, phase=experiment, series=None, kernel="spans/AVX2",
        bytes_payload=payload, bytes_metadata=metadata, bytes_slack=slack, held_bytes_per_token=(payload + metadata + slack) / batch / length,
        bytes_workspace_peak=payload * variant.startswith("concat") + 4096, bytes_predicted=int(1.01 * payload),
        peak_bytes=int(payload * (2 if variant.startswith("concat") else 1.6)) + 4096, model_layers=MODEL_LAYERS,
        model_bytes=payload * MODEL_LAYERS // SHAPE["layers"], step_p50_us=step, step_p99_us=step * 1.4, cold_attend_p50_us=step * 1.6,
        read_gbps=40 * share, ceiling_gbps=40 if length > 256 else 15, ceiling_share=share, cold_read_gbps=12 * share * 0.8, cold_ceiling_gbps=12,
        cold_ceiling_share=cold, err_rel_l2=error, versus="" if variant == first else first, verdict=verdict, ratio_p50=ratio, **roofline,
    )  # fmt: skip


def one_thread_cell(cell: dict) -> dict:
    """The same shape with one thread, of which only cold reads were measured."""
    kept = {name: value for name, value in cell.items() if isinstance(value, str) or name.startswith("cold") or name in AXES}
    return {**dict.fromkeys(cell, ""), **kept, "threads": 1, "cell": f"{cell['cell']}-t1"}


def growth_cells(variants, growing, until) -> tuple[list[dict], list[dict]]:
    """The cells of a growth run of the first variants at two lengths, and the rows of growth.csv."""
    draw, cells, steps, first = random.Random(2), [], [], {}
    for variant in list(variants)[:growing]:
        for length in sorted({until // 2, until}):
            own = growth_steps(draw, variants, variant, length)
            sums = [sum(step["append_us"] + step["view_us"] for step in own if step["repetition"] == repetition) for repetition in (0, 1)]
            total = {"append_total_us": sum(sums) / 2, "append_total_ci_low_us": min(sums), "append_total_ci_high_us": max(sums)}
            ratio = total["append_total_us"] / first.setdefault(length, total["append_total_us"])
            if cells and variant != cells[0]["variant"]:
                total |= {"append_total_ratio_p50": ratio, "append_total_ratio_ci_low": 0.9 * ratio, "append_total_ratio_ci_high": 1.2 * ratio}
            cells.append(timed_cell(draw, variants, variant, "growth", length, 1, "gaussian") | total)
            steps += [{"cell": cells[-1]["cell"], "variant": variant, **step} for step in own]
    return cells, steps


def growth_steps(draw, variants, variant, until) -> list[dict]:
    steps = []
    for repetition in range(2):
        for token in range(1, until + 1):
            time = (4 + variants[variant][2] * token) * draw.uniform(0.9, 1.15)
            append = (0.2 + 0.01 * token * (variant.startswith("concat"))) * (1 + 0.1 * repetition)
            append += variants[variant][2] if variant.startswith("paged") else 0
            append += 2 + 0.4 * token if variant.startswith("doubling") and token & (token - 1) == 0 else 0
            view = 0.05 + 0.008 * token * ("read=copy" in variant)
            steps.append({"repetition": repetition, "token": token, "append_us": append, "view_us": view, "step_us": time + append + view})
    return steps


def synthetic_run(folder: Path, variants=SYNTHETIC, lengths=(256, 512, 1024, 2048, 4096), batches=(1,), workloads=("gaussian",),
                  growth_to=0, growing=4, also=(), one_thread=False, env=None) -> Path:  # fmt: skip
    """Writes a results folder: a decode cell a variant, length, batch and workload, optionally a growth run of the first `growing`
    variants, and the cells of `also`, experiments or other keys of planted.PLANTED; `env`: other keys in the tables of env.json."""
    from planted import SIDES, planted_cells

    cells = decode_cells(variants, lengths, batches, workloads)
    grown, steps = growth_cells(variants, growing, growth_to) if growth_to else ([], [])
    cells += grown
    for name in also:
        cells += planted_cells(name, workloads[0], lengths)
    cells += [one_thread_cell(cell) for cell in list(cells) if cell["experiment"] == "decode"] if one_thread else []
    for status, reason in (
        ("unsupported", "h2o overwrites single tokens inside a <script>alert(1)</script> group"),
        ("out_of_memory", "needs 96 GiB, 7.6 GiB free"),
        ("failed", "relative L2 error 3.1e-2 is above the bound 1e-2"),
    ):
        cells.append({**with_stages({**cells[0], "variant": f"paged(block=16)/{status}"}), "cell": status, "status": status, "reason": reason,
                      "label": in_words(f"paged(block=16)/{status}"), "step_p50_us": "", "verdict": ""})  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "columns.json").write_text(json.dumps([*COLUMNS.values()]))
    write_csv(folder / "cells.csv", list(dict.fromkeys(name for cell in cells for name in cell)), cells)
    for name, rows in {"growth.csv": steps, **{name: rows(cells) for name, rows in SIDES.items()}}.items():
        if rows:
            write_csv(folder / name, list(dict.fromkeys(key for row in rows for key in row)), rows)
    machine = {
        "kvlab": {"version": "0.0-synthetic", "git_dirty": False}, "cpu": {"model": "Synthetic CPU <b>0</b>", "cores": 2, "l2_bytes": 2 << 20},
        "model": {"name": "made-up model"}, "config": {"name": "synthetic"}, "memory_bytes": 8 << 30, "ceilings": {"hot_gbps": 40.0},
    }  # fmt: skip
    (folder / "env.json").write_text(json.dumps(machine | {table: machine[table] | keys for table, keys in (env or {}).items()}))
    (folder / "config.toml").write_text("# made up by tests/plots/synthetic.py\nlengths = [256, 512]\n")
    return folder


def write_csv(path: Path, columns: list[str], rows: list[dict]):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def edit(folder: Path, change, name: str = "cells.csv") -> Path:
    """The folder with `change` made to each row of a table: of a dict in place, or to the dict that it returns, None to leave it out."""
    rows = rows_of(folder / name)
    rows = [changed for row in rows if (changed := change(row)) is not None]
    write_csv(folder / name, list(dict.fromkeys(key for row in rows for key in row)), rows)
    return folder


STEP = {"name": "step_p50_us", "unit": "us", "meaning": "append + <view> + attend"}


def described(name: str, kind: str, *aliases: str) -> dict:
    """An entry of columns.json."""
    return {"name": name, "unit": "", "type": kind, "meaning": "", "aliases": list(aliases)}


def describe(folder: Path, *entries: dict) -> Path:
    """The folder with these entries in columns.json, as changes of known ones; all others without a meaning."""
    names = {name for entry in entries for name in (entry["name"], *entry.get("aliases", ()))}
    others = [entry | {"meaning": ""} for name, entry in COLUMNS.items() if name not in names]
    (folder / "columns.json").write_text(json.dumps([*others, *(COLUMNS.get(entry["name"], {}) | entry for entry in entries)]))
    return folder


def on_hosts(folder: Path, *names: str) -> Path:
    """The folder as if two machines had measured each row of these tables."""
    for name in names:
        rows = [row | {"host": host} for host in ("n1", "n2") for row in rows_of(folder / name)]
        write_csv(folder / name, list(rows[0]), rows)
    return folder
