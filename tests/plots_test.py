"""The charts: reading results, refusing broken ones, and a report that works in a browser without a network.

The results here are made up by formula, obviously synthetic, and live in a temporary folder.
"""

from __future__ import annotations

import csv
import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

PLOTS = Path(__file__).resolve().parent.parent / "plots"
sys.path.insert(0, str(PLOTS))

from data import CELL_NUMBERS, CELL_TEXT, LATER_NUMBERS, LATER_TEXT, BadResults, load_run
from prepare import (
    NoData,
    by_budget,
    by_what_is_kept,
    growth_totals,
    longest_growth,
    measured,
    of_experiment,
    prefill_arms,
    stepped,
    thin,
    title_of,
    with_front,
    with_panel,
)
from roofline import bound_table, time_table
from style import VariantStyle, bytes_text, natural_order

LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM = 2, 8, 4, 64

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


def synthetic_run(folder: Path, variants=SYNTHETIC, lengths=(256, 512, 1024, 2048, 4096), batches=(1,),
                  workloads=("gaussian",), growth_to=0, later=False, one_thread=False, cpu="Synthetic CPU <b>0</b>") -> Path:  # fmt: skip
    """Writes a results folder by formula: a cell a variant, length, batch and workload, and optionally a growth run and
    the experiments that came later."""
    draw = random.Random(1)
    cells, steps = [], []
    for batch in batches:
        for workload in workloads:
            for length in lengths:
                for variant in variants:
                    cells.append(synthetic_cell(draw, variants, variant, "decode", length, batch, workload))
                again = dict(cells[-len(variants)], cell=f"null-{batch}-{workload}-{length}", verdict="null")
                cells.append(
                    dict(
                        again, versus=again["variant"], ratio_p50=1.001, ratio_ci_low=0.99, ratio_ci_high=1.01
                    )
                )
    for variant in list(variants)[:4] if growth_to else []:
        cell = synthetic_cell(draw, variants, variant, "growth", growth_to, 1, workloads[0])
        cells.append(cell)
        steps += synthetic_steps(draw, variants, variant, cell["cell"], growth_to)
    if one_thread:
        cells += [one_thread_cell(cell) for cell in list(cells) if cell["experiment"] == "decode"]
    if later:
        cells += [*budget_cells(workloads[0]), *checkpoint_cells(workloads[0], lengths), *reading_cells(workloads[0]),
                  *stream_cells(workloads[0])]  # fmt: skip
        cells = [with_bounds(cell) for cell in cells]
    for status, reason in (
        ("unsupported", "h2o overwrites single tokens inside a <script>alert(1)</script> group"),
        ("out_of_memory", "needs 96 GiB, 7.6 GiB free"),
        ("failed", "relative L2 error 3.1e-2 is above the bound 1e-2"),
    ):
        cells.append(dict(cells[0], cell=status, variant=f"paged(block=16)/{status}", status=status, reason=reason,
                          step_p50_us="", verdict=""))  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "cells.csv", ["ignored_column", *CELL_TEXT, *CELL_NUMBERS, *(LATER_TEXT + LATER_NUMBERS if later else [])], cells)  # fmt: skip
    if later:
        positions = position_rows(cells) + stream_rows(cells)
        write_csv(folder / "positions.csv", list(positions[0]), positions)
        write_csv(folder / "texts.csv", list(text_rows()[0]), text_rows())
    if steps:
        write_csv(folder / "growth.csv", list(steps[0]), steps)
    env = {
        "kvlab": {"version": "0.0-synthetic", "git_dirty": False}, "cpu": {"model": cpu, "cores": 2, "l2_bytes": 2 << 20},
        "model": {"name": "made-up model"}, "config": {"name": "synthetic"}, "memory_bytes": 8 << 30,
        "ceilings": {"hot_gbps": 40.0},
    }  # fmt: skip
    (folder / "env.json").write_text(json.dumps(env))
    (folder / "config.toml").write_text("# made up by tests/plots_test.py\nlengths = [256, 512]\n")
    return folder


def synthetic_cell(draw, variants, variant, experiment, length, batch, workload) -> dict:
    size, error, per_row = variants[variant]
    payload = 2 * LAYERS * KV_HEADS * HEAD_DIM * length * batch * size
    step = (4 + per_row * length * batch) * draw.uniform(0.97, 1.03)
    ratio = per_row / next(iter(variants.values()))[2]
    first = variant == next(iter(variants))
    verdict = (
        "baseline" if first else "ambiguous" if abs(ratio - 1) < 0.1 else "slower" if ratio > 1 else "faster"
    )
    share = 0.9 - 0.1 * size
    return {
        "cell": f"{experiment}-{variant}-{length}-{batch}-{workload}", "variant": variant, "device": "cpu", "threads": 2,
        "experiment": experiment, "phase": experiment, "workload": workload, "layers": LAYERS, "q_heads": Q_HEADS,
        "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "batch": batch, "seq_len": length, "status": "ok",
        "kernel": "spans/AVX2", "bytes_payload": int(payload), "bytes_metadata": int(payload * 0.06 * (size < 2)),
        "bytes_slack": int(payload * 0.5 * variant.startswith("doubling")),
        "bytes_workspace_peak": int(payload * variant.startswith("concat")) + 4096, "bytes_predicted": int(payload),
        "step_p50_us": step, "step_p90_us": step * 1.1, "step_p99_us": step * 1.4, "step_max_us": step * 3,
        "step_ci_low_us": step * 0.96, "step_ci_high_us": step * 1.05, "cold_attend_p50_us": step * 1.6,
        "read_gbps": 40 * share, "ceiling_gbps": 40, "ceiling_share": share, "cold_read_gbps": 12 * share * 0.8,
        "cold_ceiling_gbps": 12, "cold_ceiling_share": share * (0.6 + 0.03 * math.log2(length)), "err_max_abs": error * 4,
        "err_rel_l2": error, "err_cosine": 1 - error**2, "err_attn_kl": error**2,
        "versus": "" if first else next(iter(variants)), "verdict": verdict, "ratio_p50": ratio,
        "ratio_ci_low": ratio * 0.97, "ratio_ci_high": ratio * 1.04,
    }  # fmt: skip


def with_bounds(cell: dict) -> dict:
    """A peak at which f32 is bound by memory, and all else by multiply-adds when hot."""
    if cell["experiment"] != "decode" or not cell.get("cold_ceiling_share"):
        return cell
    hot = "memory" if "f32" in cell["variant"] else "compute"
    bound = lambda prefix, name, share: {f"{prefix}bound": name, f"{prefix}bound_us": 7, f"{prefix}bound_share": share}  # noqa: E731
    bounds = {**bound("cold_", "memory", cell["cold_ceiling_share"]), "multiply_add_peak_per_s": 1e11}
    if cell["ceiling_share"]:
        bounds |= bound("", hot, cell["ceiling_share"] + (0.2 if hot == "compute" else 0))
    ratio = cell.get("ratio_p50") or ""
    return {**cell, **bounds, "cold_ratio_p50": ratio and 0.9 * ratio}


def one_thread_cell(cell: dict) -> dict:
    """The same shape with one thread, of which only cold reads were measured."""
    shape = ("layers", "q_heads", "kv_heads", "head_dim", "batch", "seq_len", "threads")
    kept = {name: cell[name] for name in cell if isinstance(cell[name], str) or name.startswith("cold") or name in shape}
    low, high = (factor * cell["cold_attend_p50_us"] for factor in (0.95, 1.1))
    return {**dict.fromkeys(cell, ""), **kept, "threads": 1, "cell": f"{cell['cell']}-t1", "cold_ci_low_us": low,
            "cold_ci_high_us": high}  # fmt: skip


def cell_without_times(experiment, variant, length, workload, **columns) -> dict:
    return {
        "cell": f"{experiment}-{variant}-{length}", "variant": variant, "device": "cpu", "threads": 2,
        "experiment": experiment, "phase": "decode", "workload": workload, "layers": LAYERS, "q_heads": Q_HEADS,
        "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "batch": 1, "seq_len": length, "status": "ok",
        "bytes_payload": 1000, "bytes_metadata": 0, "bytes_slack": 0, "bytes_workspace_peak": 0, **columns,
    }  # fmt: skip


def budget_cells(workload) -> list[dict]:
    """Two policies over four budgets, and a codec."""
    cells = [
        cell_without_times("budget", f"contiguous/f32/{policy}(budget={kept})", 1024, workload, kept_tokens=kept,
                           series=f"contiguous/f32/{policy}(budget={{budget}})", err_rel_l2=error * 8 / kept,
                           held_bytes_per_token=kept, err_positions=16)
        for policy, error in (("tova", 0.1), ("random", 1)) for kept in (64, 128, 256, 512)
    ]  # fmt: skip
    codec = cell_without_times("budget", "contiguous/f16/full", 1024, workload, kept_tokens=1024, err_rel_l2=4e-4,
                               series="contiguous/f16/full", held_bytes_per_token=512, err_positions=16)  # fmt: skip
    return [*cells, codec]


def checkpoint_cells(workload, lengths) -> list[dict]:
    return [
        cell_without_times("checkpoint", variant, length, workload, save_p50_us=10 * length, load_p50_us=5 * length,
                           freeze_p50_us=length, unfreeze_p50_us=0.8 * length, fork_p50_us=fork * length,
                           saved_bytes=100 * length, fork_bytes=0)
        for variant, fork in (("contiguous/f32/full", 0.5), ("concat/f32/full", 0.01)) for length in lengths
    ]  # fmt: skip


READING_SERIES = {
    "contiguous/f32/full": 0, "contiguous/f16/full": 1e-7, "contiguous/token(bits=4)/full": 3e-3,
    "contiguous/q8_0/full": 1e-5, "contiguous/token(bits=2)/full": 0.2,
    "contiguous/f16/ring(window={budget})": 1, "contiguous/f16/tova(budget={budget})": 1,
}  # fmt: skip


def reading_cells(workload) -> list[dict]:
    """The quality experiment, and recall at three distances: codecs, and two policies that forget."""
    cells = []
    for series, kl in READING_SERIES.items():
        for budget in (64, 256) if "{" in series else (1024,):
            columns = {
                "series": series, "kept_tokens": budget, "held_bytes_per_token": budget * (2 if kl else 4),
                "predictions": 8192, "peak_bytes": 1 << 20, "tokens_per_s": 2000, "verdict": "worse" if kl else "baseline",
            }  # fmt: skip
            change = kl / budget if kl == 1 else kl
            variant = series.replace("{budget}", str(budget))
            cells.append(cell_without_times("quality", variant, 1024, workload, **columns, perplexity=7 * math.exp(change),
                                            **around("loss_change", change, 0.3), **around("kl_mean", change, 0.2),
                                            loss=1.9 + change, loss_se=0.02, **around("top1_agreement", 0.97, 0.01)))  # fmt: skip
            for distance in (100, 200, 400):
                loss = 6.2 if budget < distance else 0.1 + change
                cells.append(cell_without_times("recall", variant, distance + 103, workload, **columns, distance=distance,
                                                passage_tokens=64, loss=loss, loss_se=0.05, perplexity=math.exp(loss)))  # fmt: skip
                cells[-1]["cell"] += f" distance {distance}"
    return cells


STREAM = {"contiguous/f32/full": 1.5, "contiguous/f32/ring(window=256)": 0, "recompute(window=256,stride=32)": 0}


def stream_cells(workload) -> list[dict]:
    """A cache that keeps all loses its way beyond the trained context; a window does not."""
    return [
        cell_without_times("stream", variant, 8192, workload, predictions=8192, loss=2 + lost, loss_se=0.02,
                           perplexity=math.exp(2 + lost), **around("loss_change", lost, 0.1), trained_tokens=1024,
                           tokens_per_s=500, verdict="worse" if lost else "ambiguous")
        for variant, lost in STREAM.items()
    ]  # fmt: skip


def stream_rows(cells) -> list[dict]:
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "seq_len": 8192, "position_first": first,
         "position_last": first + 1023, "predictions": 1024, "loss": 2 + STREAM[cell["variant"]] * first / 4096,
         "loss_se": 0.08, "top1_agreement": "", "kl_mean": "", "kl_mean_ci_low": "", "kl_mean_ci_high": ""}
        for cell in cells if cell["experiment"] == "stream" for first in range(0, 8192, 1024)
    ]  # fmt: skip


def around(column, value, share) -> dict:
    return {column: value, f"{column}_ci_low": value * (1 - share), f"{column}_ci_high": value * (1 + share)}


def position_rows(cells) -> list[dict]:
    """Windows are exact until they forget."""
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "seq_len": 1024, "position_first": first, "position_last": last,
         "predictions": 8 * (last - first + 1), "loss": 2, "loss_se": 0.1, "top1_agreement": 0.97,
         **around("kl_mean", 0 if last < cell["kept_tokens"] < 1024 else cell["kl_mean"], 0.2)}
        for cell in cells if cell["experiment"] == "quality"
        for first, last in ((0, 15), (16, 31), (32, 63), (64, 127), (128, 255), (256, 511), (512, 1023))
    ]  # fmt: skip


def text_rows() -> list[dict]:
    return [
        {"cell": "g", "variant": "contiguous/f16/full", "temperature": 0, "sequence": 0, "common_tokens": "",
         "prompt": "<i>Once</i> upon", "text": " a time <b>there</b>\nwas", "full_text": " a time <b>there</b>\nwas"},
        {"cell": "h", "variant": "contiguous/token(bits=2)/full", "temperature": 0, "sequence": 0, "common_tokens": 2,
         "prompt": "<i>Once</i> upon", "text": " a time they & all", "full_text": " a time <b>there</b>\nwas"},
    ]  # fmt: skip


def synthetic_steps(draw, variants, variant, cell, until) -> list[dict]:
    steps = []
    for repetition in range(2):
        for token in range(1, until + 1):
            time = (4 + variants[variant][2] * token) * draw.uniform(0.9, 1.15)
            append = 0.2 + 0.01 * token * (variant.startswith("concat"))
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


def report(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, str(PLOTS / "report.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def first_line(process: subprocess.CompletedProcess) -> str:
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr.rstrip()


# ---- reading results


def test_empty_fields_are_not_measured(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run"), "run")
    unsupported = run.cells.filter(run.cells["status"] == "unsupported")
    assert unsupported["step_p50_us"].to_list() == [None]


def test_memory_is_compared_with_contiguous_f32(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(4096,)), "run").cells)
    ratios = dict(zip(cells["variant"], cells["memory_vs_f32"]))
    assert 1.0 <= ratios["contiguous/f32/full"] < 1.001  # 4 KiB of workspace on 16 MiB
    assert 0.5 <= ratios["contiguous/f16/full"] < 0.501
    assert 1.5 <= ratios["doubling/f32/full"] < 1.501


def test_null_ab_and_unmeasured_rows_are_not_drawn(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(256,)), "run").cells)
    assert sorted(cells["variant"]) == sorted(SYNTHETIC)


def test_panels_split_by_what_makes_a_difference(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", batches=(1, 4), workloads=("gaussian", "sinks")), "run")
    cells = measured(run.cells)
    assert set(with_panel(cells)["panel"]) == {
        "gaussian · batch 1", "gaussian · batch 4", "sinks · batch 1", "sinks · batch 4"
    }  # fmt: skip
    memory = with_panel(cells, ("workload",), ("bytes_payload",))
    assert set(memory["panel"]) == {"batch 1", "batch 4"}
    assert memory.height == cells.height / 2


@pytest.mark.parametrize("value, title", [(1, "1 thread"), (2, "2 threads"), (16, "16 threads")])
def test_panel_titles_count(value, title):
    assert title_of("threads", value) == title


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "the file is empty"),
        ("{header}\n", "a header and no rows"),
        ("{header}\n{row}", ":2: the last line is torn"),
        ("{header}\n{row}\n{half}\n", ":3: "),
        ("{header}\n{row}\n{word}\n", ":3: step_p50_us is 'soon', which is not a number"),
        ("cell,variant\n1,2\n", "missing columns device, experiment"),
        ("\x00\xff", "cannot be read"),
    ],
)
def test_broken_cells_get_one_line(tmp_path, content, complaint):
    header = [*CELL_TEXT, *CELL_NUMBERS]
    row = ["1"] * len(header)
    word = ["soon" if column == "step_p50_us" else "1" for column in header]
    lines = {"header": header, "row": row, "half": row[:9], "word": word}
    written = content.format(**{name: ",".join(fields) for name, fields in lines.items()})
    (tmp_path / "cells.csv").write_bytes(written.encode("latin-1"))
    with pytest.raises(BadResults) as error:
        load_run(tmp_path, "run")
    assert "cells.csv" in str(error.value)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_input_exits_with_2(tmp_path):
    absent = report(tmp_path / "absent")
    assert absent.returncode == 2
    assert "no such folder" in first_line(absent)
    (tmp_path / "empty").mkdir()
    no_cells = report(tmp_path / "empty")
    assert no_cells.returncode == 2
    assert "cells.csv: no such file" in first_line(no_cells)
    torn = synthetic_run(tmp_path / "torn")
    (torn / "env.json").write_text('{"cpu": ')
    assert report(torn).returncode == 2
    assert not (torn / "report.html").exists()
    (tmp_path / "file").write_text("in the way")
    blocked = report(synthetic_run(tmp_path / "run", lengths=(256,)), "--out", tmp_path / "file")
    assert blocked.returncode == 2
    assert "cannot be written" in first_line(blocked)


# ---- what is computed for the figures


def test_thinning_keeps_every_spike(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", growth_to=4096), "run")
    steps = run.growth.with_columns(panel=run.growth["cell"], length=run.growth["token"])
    kept = thin(steps, 2000)
    assert 1000 < kept.height <= 2000
    doubling = steps.filter(steps["variant"] == "doubling/f32/full")
    spikes = doubling.filter(doubling["step_us"] > 120)
    assert sorted(spikes["token"].unique()) == [512, 1024, 2048, 4096]
    assert spikes.join(kept, on=["cell", "repetition", "token"], how="anti").is_empty()
    assert kept.join(steps, on=["cell", "repetition", "token", "step_us"], how="anti").is_empty()


def test_growth_totals_tell_linear_from_quadratic(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(), growth_to=4096), "run")
    totals = growth_totals(longest_growth(run.growth, measured(run.cells)))
    total = {
        (variant, length): us for variant, length, us in totals["variant", "length", "total_us"].iter_rows()
    }
    assert total["contiguous/f32/full", 4096] == pytest.approx(4096 * 0.25)
    assert 3.8 < total["concat/f32/full", 4096] / total["concat/f32/full", 2048] < 4
    assert 1.9 < total["doubling/f32/full", 4096] / total["doubling/f32/full", 2048] < 2.1


def test_tokens_may_count_from_zero(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(), growth_to=256), "run")
    from_zero = run.growth.with_columns(token=run.growth["token"] - 1)
    for growth in (run.growth, from_zero):
        lengths = longest_growth(growth, measured(run.cells))["length"]
        assert (lengths.min(), lengths.max()) == (1, 256)


def test_pareto_front_is_what_nothing_beats(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(4096,)), "run").cells)
    rows = with_front(with_panel(cells).rename({"bytes_per_token": "per_token", "err_rel_l2": "error"}))
    front = rows.filter(rows["front"])
    assert set(front["variant"]) == {"contiguous/q8_0/full", "contiguous/f16/full", "contiguous/f32/full"}
    for point in rows.iter_rows(named=True):
        beaten = (rows["per_token"] <= point["per_token"]) & (rows["error"] < point["error"])
        assert not (point["front"] and beaten.any())


def test_variants_keep_distinct_styles():
    style = VariantStyle(MANY)
    ranges = [encoding["scale"]["range"] for encoding in (style.colour().to_dict(), style.shape().to_dict())]
    assert len(set(zip(*ranges))) == len(MANY) == 30


def test_units_and_order():
    assert [bytes_text(b) for b in (0, 1023, 1536, 1 << 20, None)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1 MiB",
        "–",
    ]
    assert natural_order(["paged(block=16)", "paged(block=4)"]) == ["paged(block=4)", "paged(block=16)"]


# ---- the report


def test_what_was_not_measured_is_left_out(tmp_path):
    folder = synthetic_run(tmp_path / "run", lengths=(256,))
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for column in CELL_NUMBERS:
            if column.startswith(("err", "cold", "ceiling", "bytes", "ratio")) or "ci" in column:
                row[column] = ""
    write_csv(folder / "cells.csv", list(rows[0]), rows)
    (folder / "env.json").unlink()
    (folder / "config.toml").unlink()
    done = report(folder)
    assert done.returncode == 0, done.stderr
    left_out = [line.split(":")[0] for line in done.stdout.splitlines() if "left out" in line]
    assert left_out == [
        "memory", "bytes", "growth", "growth_total", "pareto", "bandwidth", "kernels", "kernels_ratio", "budget",
        "checkpoint", "prefill_workspace", "prefill_time", "batch_waste", "quality_kl", "quality_loss", "kl_position", "recall", "recall_budget",
        "stream",
    ]  # fmt: skip
    assert (folder / "figures" / "latency.png").exists()


def test_several_runs_share_one_report(tmp_path):
    runs = [
        synthetic_run(tmp_path / name, lengths=(256, 512), growth_to=4096, cpu=f"CPU {name}")
        for name in ("a", "b")
    ]
    done = report(*runs, "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert not (runs[0] / "report.html").exists()
    page = (tmp_path / "both" / "report.html").read_text()
    assert "CPU a" in page
    assert "CPU b" in page


def test_a_run_without_growth_says_so(tmp_path):
    done = report(synthetic_run(tmp_path / "run", lengths=(256,)))
    assert done.returncode == 0, done.stderr
    assert "growth: left out, no growth experiment was run" in done.stdout
    assert "left out, no growth experiment was run" in (tmp_path / "run" / "report.html").read_text()


def test_lengths_apart_are_not_one_line(tmp_path):
    """Two experiments at lengths that they do not share cannot be seen to agree: each has a panel."""
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(256,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 2
    cells = measured(load_run(synthetic_run(tmp_path / "both", lengths=(512,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 1


def test_later_experiments_do_not_disturb_the_others(tmp_path):
    """Their cells are in figures of their own; and a folder from before them says so."""
    before, after = synthetic_run(tmp_path / "before"), synthetic_run(tmp_path / "after", later=True)
    done = report(before, after)
    assert done.returncode == 0, done.stderr
    for name in ("budget", "checkpoint", "quality_kl", "quality_loss", "kl_position", "recall", "recall_budget", "stream"):
        assert f"{name}: left out" in done.stdout.split("report.html")[0]
        assert (after / "figures" / f"{name}.svg").exists()
    for name in ("memory", "bytes", "latency"):
        same = [(folder / "figures" / f"{name}.svg").read_text() for folder in (before, after)]
        assert same[0] == same[1], name


def test_prefill_and_batch_have_figures_of_their_own(tmp_path):
    """The folder's columns are those of an older run but for the new ones, and its other figures stay as they were."""
    folder = synthetic_run(tmp_path / "run", lengths=(256, 512))
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    model = dict(rows[0], verdict="", step_p50_us="", cold_ceiling_share="", ceiling_share="")
    for length in (256, 512):
        for arm, chunk in (("materialised", ""), ("chunked", 64), ("chunked", 128), ("tiled", "")):
            rows.append(
                dict(model, cell=f"p-{arm}-{chunk}-{length}", experiment="prefill", phase="prefill", seq_len=length,
                     bytes_workspace_peak=length * (int(chunk or 64)), arm=arm, chunk_tokens=chunk,
                     prefill_p50_us=length, prefill_ci_low_us=length - 9, prefill_ci_high_us=length + 9)
            )  # fmt: skip
    for lengths, waste in (("16,32,500", 0.5), ("uniform(16,512)", 0.25)):
        rows.append(
            dict(model, cell=f"b-{lengths}", experiment="batch", lengths=lengths, waste_share=waste, seq_len=77,
                 step_p50_us=5)
        )  # fmt: skip
    later = ["arm", "lengths", "chunk_tokens", "waste_share"]
    times = ["prefill_p50_us", "prefill_ci_low_us", "prefill_ci_high_us"]
    write_csv(folder / "cells.csv", list(dict.fromkeys([*rows[0], *later, *times])), rows)
    run = load_run(folder, "run")
    arms = prefill_arms(measured(run.cells), "prefill_p50_us")
    assert set(arms["arm_text"]) == {"materialised", "chunks of 64 tokens", "chunks of 128 tokens", "tiled"}
    assert arms["panel"].n_unique() == 1
    assert set(stepped(measured(run.cells))["seq_len"]) == {256, 512}
    done = report(folder)
    assert done.returncode == 0, done.stderr
    for name in ("memory", "latency", "prefill_workspace", "prefill_time", "batch_waste"):
        assert (folder / "figures" / f"{name}.png").exists(), done.stdout


def test_recall_is_drawn_against_distance_and_against_budget(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", later=True), "run")
    recalls = of_experiment(measured(run.cells), "recall", "loss", "distance")
    by_distance = by_what_is_kept(with_panel(recalls))
    panels = ["every token kept", "64 tokens kept", "256 tokens kept"]
    assert list(dict.fromkeys(by_distance["panel"])) == panels
    forgetful = by_distance.filter(by_distance["panel"] != panels[0])
    assert set(forgetful["variant"]) == {series for series in READING_SERIES if "{" in series}
    rows, full = by_budget(recalls)
    assert list(dict.fromkeys(rows["panel"])) == ["distance 100", "distance 200", "distance 400"]
    assert rows["kept_tokens"].to_list() == [64, 256] * 6
    assert set(full["variant"]) == {"contiguous/f32/full"} and rows["full_loss"].to_list() == [0.1] * 12
    assert [loss > 6 for loss in rows["loss"]] == [True, False] * 4 + [True, True] * 2


def test_shapes_are_coloured_by_the_bound_that_holds(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 4096), later=True, one_thread=True), "run")
    cells, names = measured(run.cells), natural_order(SYNTHETIC)
    drawn = table_rows(bound_table(cells, names))
    assert set(drawn["panel"]) == {"8/4 heads of 64 · cold", "8/4 heads of 64 · hot"}
    by = {(row["variant"], row["panel"].split()[-1], row["column"]): row for row in drawn.to_dicts()}
    # One thread was not measured hot.
    assert len(by) == 6 * 2 * 3 and ("contiguous/f32/full", "hot", "256 · 1t") not in by
    f32, f16 = (by[f"contiguous/{codec}/full", "hot", "4K · 2t"] for codec in ("f32", "f16"))
    assert (f32["kind"], f32["label"], f32["small"]) == ("memory · 50–70 %", "50", "")
    assert (f16["kind"], f16["label"], f16["small"]) == ("compute · 90 % and more", "90", "(70)")
    assert all(row["kind"].startswith("memory") for key, row in by.items() if key[1] == "cold")
    # Where hot reads are no faster than cold ones, no cache holds the rows.
    slow = cells.with_columns(ceiling_gbps=1.2 * pl.col("cold_ceiling_gbps"))
    assert set(table_rows(bound_table(slow, names))["panel"]) == {"8/4 heads of 64 · cold"}


def test_shapes_of_older_folders_have_no_bound(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 512), later=True, one_thread=True), "run")
    older = measured(run.cells).with_columns(
        **{column: pl.lit(None, run.cells.schema[column]) for column in run.cells.columns if "bound" in column},
        **{column: pl.lit(None, pl.Float64) for column in ("ratio_p50", "cold_ratio_p50")},
    )
    drawn = table_rows(bound_table(older, natural_order(SYNTHETIC)))
    assert {kind.split()[0] for kind in drawn["kind"]} == {"memory"}
    with pytest.raises(NoData, match="compared with a baseline"):
        time_table(older, natural_order(SYNTHETIC))


def test_times_are_classed_against_the_baseline(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 512), later=True, one_thread=True), "run")
    drawn = table_rows(time_table(measured(run.cells), natural_order(SYNTHETIC)))
    kinds = {(row["variant"], row["panel"].split()[-1]): row["kind"] for row in drawn.to_dicts()}
    assert kinds["contiguous/f16/full", "hot"] == "0.55–0.8"  # 0.012 / 0.020
    assert kinds["contiguous/f16/full", "cold"] == "below 0.55"
    assert kinds["concat/f32/full", "cold"] == "1.25 and more"


def table_rows(chart) -> pl.DataFrame:
    return pl.DataFrame(chart.to_dict()["data"]["values"], infer_schema_length=None)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIGURE_NAMES = [
    "memory", "bytes", "latency", "growth", "growth_total", "pareto", "bandwidth", "kernels", "kernels_ratio", "budget",
    "checkpoint", "quality_kl", "quality_loss", "kl_position", "recall", "recall_budget", "stream",
]  # fmt: skip


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """(the page of a report with every figure, opened from disk in Chromium offline; what its console complained of)"""
    if not CHROMIUM:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    folder = synthetic_run(tmp_path_factory.mktemp("report") / "a run", growth_to=1024, later=True, one_thread=True)
    done = report(folder)
    assert done.returncode == 0, done.stderr
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        context = browser.new_context(offline=True, viewport={"width": 1400, "height": 1000})
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
        page.goto((folder / "report.html").as_uri())
        page.evaluate("window.drawn")
        yield page, complaints
        browser.close()


def test_every_figure_is_drawn(opened):
    page, complaints = opened
    assert page.evaluate("Object.keys(window.views)") == FIGURE_NAMES
    for name in FIGURE_NAMES:
        marks = page.evaluate(MARKS, name)
        assert len(marks) >= 6, name
        box = page.locator(f"#chart-{name} :is(svg.marks, canvas.marks)").bounding_box()
        assert box["width"] > 400, name
        assert box["height"] > 150, name
    assert complaints == []


def test_pictures_are_written(opened):
    page, _ = opened
    folder = Path(page.url.removeprefix("file://").replace("%20", " ")).parent / "figures"
    for name in FIGURE_NAMES:
        assert (folder / f"{name}.svg").read_text().startswith("<svg")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_tooltips_appear(opened, name):
    page, _ = opened
    chart = page.locator(f"#chart-{name} :is(svg.marks, canvas.marks)")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    x, y = page.evaluate(MARKS, name)[0]
    page.mouse.move(box["x"] + x - 3, box["y"] + y - 2)
    page.mouse.move(box["x"] + x, box["y"] + y, steps=3)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for(timeout=3000)
    assert "variant" in tooltip.inner_text()
    assert any(part in tooltip.inner_text() for part in ("/f", "recompute("))
    page.mouse.move(0, 0)


@pytest.mark.parametrize("name", [name for name in FIGURE_NAMES if not name.startswith("kernels")])  # whose variants are rows
def test_a_click_in_the_legend_selects(opened, name):
    page, complaints = opened
    chart = page.locator(f"#chart-{name} :is(svg.marks, canvas.marks)")
    chart.scroll_into_view_if_needed()
    assert page.evaluate("(name) => window.views[name].data('focus_store').length", name) == 0
    faint_before = page.evaluate(FAINT, name)
    box = chart.bounding_box()
    x, y = page.evaluate(LEGEND_ENTRY, name)
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.evaluate("(name) => window.views[name].runAsync().then(() => null)", name)
    assert page.evaluate("(name) => window.views[name].data('focus_store').length", name) >= 1  # one a panel
    assert page.evaluate(FAINT, name) > faint_before
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    page.evaluate("(name) => window.views[name].runAsync().then(() => null)", name)
    assert page.evaluate(FAINT, name) == faint_before
    assert complaints == []


def test_the_length_menu_redraws(opened):
    page, _ = opened
    title = page.locator("#chart-pareto svg .role-title-text", has_text="tokens")
    assert "4,096 tokens" in title.text_content()
    page.locator("#chart-pareto select").select_option("256")
    page.evaluate("window.views.pareto.runAsync().then(() => null)")
    assert "256 tokens" in title.text_content()


def test_the_table_shows_everything_escaped(opened):
    page, _ = opened
    table = page.locator("table#cells").inner_text()
    for expected in (
        "ambiguous",
        "null A/B",
        "out of memory",
        "needs 96 GiB",
        "<script>alert(1)</script> group",
    ):
        assert expected in table
    assert "Synthetic CPU <b>0</b>" in page.locator("main").inner_text()
    assert page.locator("main b").count() == 0
    assert "tokens/s" not in table and "distance" not in table  # they have a table of their own
    page.locator("#filter").fill("q8_0")
    visible = page.locator("tr[data-variant]:visible td:first-child").all_inner_texts()
    assert visible
    assert all("q8_0" in name for name in visible)


def test_predictions_have_a_table_of_their_own(opened):
    page, _ = opened
    readings = page.locator("#readings ~ .card table").first.inner_text()
    for expected in ("quality · 1K tokens", "recall · distance 400", "worse", "baseline"):
        assert expected in readings
    assert "Tiny models exaggerate damage" in page.locator("main").inner_text()
    for name in ("quality_kl", "quality_loss", "kl_position", "recall", "recall_budget", "stream"):
        assert "Tiny models exaggerate damage" in page.locator(f"#{name} figcaption").inner_text()


def test_texts_stand_side_by_side_and_are_marked_where_they_part(opened):
    page, _ = opened
    rows = page.locator("table.texts tbody tr")
    assert rows.count() == 2
    cells = [rows.nth(row).locator("td").all_text_contents() for row in range(2)]
    assert "leaves never" in cells[0][0] and cells[0][1] == cells[0][2] == " a time <b>there</b>\nwas"
    assert "leaves after 2 tokens" in cells[1][0]
    assert rows.nth(1).locator("mark").all_text_contents() == ["they & all", "<b>there</b>\nwas"]
    assert "…<i>Once</i> upon" in page.locator("details.card summary").first.inner_text()


# Walk Vega's scenegraph: its items carry their position, whichever way they are drawn.
WALK = """
  const walk = (item, x, y, visit) => {
    if (item.marktype) { for (const child of item.items) visit(item, child, x, y), walk(child, x, y, visit); }
    else if (item.items) for (const mark of item.items) walk(mark, x + (item.x || 0), y + (item.y || 0), visit);
  };
  const view = window.views[name], pad = view.padding(), found = [];
  const origin = [view.origin()[0] + pad.left, view.origin()[1] + pad.top];
"""
MARKS = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, origin[0], origin[1], (mark, item, x, y) => {{
    if (mark.role != "mark" || !item.tooltip || !["symbol", "rect"].includes(mark.marktype)) return;
    found.push([x + item.x + (item.width || 0) / 2, y + item.y + (item.height || 0) / 2]);
  }});
  return found.reverse();  // the topmost first
}}"""
FAINT = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, 0, 0, (mark, item) => {{
    if (mark.role == "mark" && item.opacity < 0.1) found.push(item);
  }});
  return found.length;
}}"""
LEGEND_ENTRY = f"""(name) => {{ {WALK}
  walk(view.scenegraph().root, origin[0], origin[1], (mark, item, x, y) => {{
    if (mark.role == "legend-label") found.push([x + item.x + 10, y + item.y]);
  }});
  return found[0];
}}"""
