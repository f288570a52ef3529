"""Cells of the experiments with figures of their own: budget, checkpoint, prefill, batch, and those of models."""

from __future__ import annotations

import math

from synthetic_shape import LAYERS, Q_HEADS, cell_without_times


def budget_cells(workload) -> list[dict]:
    """Two policies over four budgets, and codecs, some of which may lie on the front by their intervals."""
    cells = [
        cell_without_times("budget", f"contiguous/f32/{policy}(budget={kept})", 1024, workload, kept_tokens=kept,
                           series=f"contiguous/f32/{policy}(budget={{budget}})", err_rel_l2=error * 8 / kept,
                           held_bytes_per_token=kept, err_positions=16, err_ci_low=error * 7 / kept, err_ci_high=error * 9 / kept)
        for policy, error in (("tova", 0.1), ("random", 1)) for kept in (64, 128, 256, 512)
    ]  # fmt: skip
    codec = cell_without_times("budget", "contiguous/f16/full", 1024, workload, kept_tokens=1024, err_rel_l2=4e-4,
                               series="contiguous/f16/full", held_bytes_per_token=512, err_positions=16)  # fmt: skip
    # The first three are equally large: the second's interval says that the third lies behind. The last may be as good as it.
    near = [
        cell_without_times("budget", f"contiguous/{name}/full", 1024, workload, kept_tokens=1024, err_rel_l2=error, err_ci_low=low,
                           err_ci_high=high, series=f"contiguous/{name}/full", held_bytes_per_token=held, err_positions=16)
        for name, held, error, low, high in (
            ("q8_0", 136, 6.4e-3, 5e-3, 9e-3), ("fp8", 136, 6.5e-3, 6.4e-3, 6.6e-3), ("mxfp8", 136, 7.5e-3, 7e-3, 8e-3),
            ("token", 140, 6.9e-3, 6.5e-3, 7.2e-3))
    ]  # fmt: skip
    return [*cells, codec, *near]


def checkpoint_cells(workload, lengths) -> list[dict]:
    return [
        cell_without_times("checkpoint", variant, length, workload, save_p50_us=10 * length, load_p50_us=5 * length,
                           freeze_p50_us=length, unfreeze_p50_us=0.8 * length, fork_p50_us=fork * length,
                           saved_bytes=100 * length, fork_bytes=0)
        for variant, fork in (("contiguous/f32/full", 0.5), ("concat/f32/full", 0.01)) for length in lengths
    ]  # fmt: skip


def prefill_cells(workload) -> list[dict]:
    arms = (("materialised", ""), ("materialised_chunked", 64), ("chunked", 64), ("chunked", 128), ("tiled", ""))
    return [
        cell_without_times("prefill", f"contiguous/f32/full {arm}{chunk}", length, workload, **times(length),
                           bytes_workspace_peak=length * (chunk or 64), arm=arm, chunk_tokens=chunk)
        | {"variant": "contiguous/f32/full", "phase": "prefill"}
        for length in (256, 512) for arm, chunk in arms
    ]  # fmt: skip


def times(length) -> dict:
    return {"prefill_p50_us": length, "prefill_ci_low_us": length - 9, "prefill_ci_high_us": length + 9}


def batch_cells(workload) -> list[dict]:
    return [
        cell_without_times("batch", "contiguous/f32/full", length, workload, lengths=lengths, waste_share=waste,
                           bytes_metadata=50, bytes_slack=1000 * waste, step_p50_us=5)
        for length, lengths, waste in ((500, "16,32,500", 0.5), (512, "uniform(16,512)", 0.25))
    ]  # fmt: skip


def whole_model_cells() -> list[dict]:
    """Weights that take 100 µs, and caches that overtake them as the context grows; the append takes 2 µs."""
    cells = []
    first = "contiguous/f32/full"
    for variant, per_token in ((first, 0.1), ("contiguous/f16/full", 0.05)):
        for batch in (1, 4):
            for length in (256, 1024, 4096):
                attend = per_token * length * batch
                step = 120 + attend
                cells.append(
                    cell_without_times("model", variant, length, "model", batch=batch, step_p50_us=step, append_p50_us=1.5,
                                       view_p50_us=0.5, attend_p50_us=attend, projections_p50_us=100, rest_p50_us=18,
                                       state_p50_us=7 if batch == 1 else None,
                                       tokens_per_s=batch / step * 1e6, tokens_per_s_ci_low=batch / step * 9e5,
                                       tokens_per_s_ci_high=batch / step * 11e5, step_bound_us=90 + 0.8 * attend,
                                       step_bound_share=(90 + 0.8 * attend) / step, cache_share=(attend + 2) / step,
                                       weights="random", weights_type="bf16", context="synthetic",
                                       verdict="faster" if variant != first else "baseline")
                    | {"cell": f"model-{variant}-{length}-{batch}"}
                    | ({"versus": first, "ratio_p50": 0.7, "ratio_ci_low": 0.6, "ratio_ci_high": 0.8}
                       if variant != first else {})
                )  # fmt: skip
    return cells


def eval_cells() -> list[dict]:
    """A user's own tensors."""
    return [
        cell_without_times("eval", variant, 300, "dump", err_rel_l2=error, held_bytes_per_token=held, kept_tokens=300)
        for variant, error, held in (
            ("contiguous/f32/full", 3e-7, 2048), ("contiguous/f16/full", 4e-4, 1024), ("contiguous/q8_0/full", 6e-3, 1088),
            ("doubling/f32/full", 3e-7, 4096), ("doubling(read=copy)/f32/full", 3e-7, 4097), ("concat/f32/full", 3e-7, 2049),
        )
    ]  # fmt: skip


def head_rows(cells) -> list[dict]:
    """The later a layer and the higher a head, the worse."""
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "layer": layer, "q_head": head,
         "err_rel_l2": cell["err_rel_l2"] * (0.5 + layer + head / 8)}
        for cell in cells if cell["experiment"] == "eval" for layer in range(LAYERS) for head in range(Q_HEADS)
    ]  # fmt: skip


MODEL_SERIES = {
    "contiguous/f32/full": 0, "contiguous/f16/full": 1e-7, "contiguous/token(bits=4)/full": 3e-3,
    "contiguous/q8_0/full": 1e-5, "contiguous/token(bits=2)/full": 0.2,
    "contiguous/f16/ring(window={budget})": 1, "contiguous/f16/tova(budget={budget})": 1,
    "contiguous/f16/quest(top=0.1)": 0.02, "contiguous/f16/quest(top=0.5)": 1e-4,
}  # fmt: skip


def prediction_cells(workload) -> list[dict]:
    """The quality experiment, and recall at three distances: codecs, and two policies that evict."""
    cells = []
    for series, kl in MODEL_SERIES.items():
        for budget in (64, 256) if "{" in series else (1024,):
            columns = {
                "series": series, "kept_tokens": budget, "held_bytes_per_token": budget * (2 if kl else 4),
                "predictions": 8192, "peak_bytes": 1 << 20, "tokens_per_s": 2000,
                "verdict": "worse" if kl > 1e-3 else "negligible" if kl else "baseline",
                "bytes_read": int(budget * (2 if kl else 4) * (float(series.split("top=")[1][:3]) if "quest" in series else 1)),
            }  # fmt: skip
            change = kl / budget if kl == 1 else kl
            variant = series.replace("{budget}", str(budget))
            intervals = {
                **around("loss_change", change, 0.3), **around("kl_mean", change, 0.2),
                **around("top1_agreement", 0.97, 0.01),
            }  # fmt: skip
            cells.append(cell_without_times("quality", variant, 1024, workload, **columns, **intervals, loss_se=0.02,
                                            loss=1.9 + change, perplexity=7 * math.exp(change)))  # fmt: skip
            for distance in (100, 200, 400):
                loss = 6.2 if budget < distance else 0.1 + change
                cells.append(cell_without_times("recall", variant, distance + 103, workload, **columns, loss=loss,
                                                loss_se=0.05, **around("loss_change", loss - 0.1, 0.1), perplexity=math.exp(loss), distance=distance,
                                                passage_tokens=64))  # fmt: skip
                cells[-1]["cell"] += f" distance {distance}"
    return cells


def sensitivity_cells(workload) -> list[dict]:
    """K is worse than V, and layer 1 than layer 0; together they cost less than the sum."""
    alone = [
        cell_without_times("sensitivity", f"contiguous/f32/full + {layer}:contiguous/split({side}={codec})", 512, workload,
                           sensitive_layer=layer, sensitive_side=side, sensitive_format=codec, series=codec,
                           **around("kl_mean", kl * (1 + layer) * (3 if side == "K" else 1), 0.2))
        for codec, kl in (("q8_0", 1e-5), ("q4_0", 3e-3)) for layer in (0, 1) for side in "KV"
    ]  # fmt: skip
    together = [
        cell_without_times("sensitivity", variant, 512, workload, sensitive_side="KV", sensitive_format=codec, series=codec,
                           predicted_kl=predicted, **around("kl_mean", factor * predicted, 0.2))
        for variant, codec, predicted, factor in (
            ("contiguous/q8_0/full", "q8_0", 1.2e-4, 1), ("contiguous/q4_0/full", "q4_0", 3.6e-2, 0.9),
            *(("contiguous/q4_0/full + 0:contiguous/" + codec, "mixture", predicted, factor) for codec, predicted, factor in (
                ("q8_0", 2.4e-2, 0.8), ("q5_0", 2.5e-2, 0.9), ("q5_1", 2.45e-2, 1.1), ("f16", 2.2e-2, 0.7))))
    ]  # fmt: skip
    return alone + together


def task_cells(workload) -> list[dict]:
    """A window forgets the beginning; the model itself fails where the line stands last in the longer context. Three places count."""
    ring = "contiguous/f32/ring(window={budget})"
    caches = [("contiguous/f32/full", "contiguous/f32/full", 400, 15, "identical"), ("contiguous/q8_0/full", "contiguous/q8_0/full", 106, 14, "too_few_questions"),
              ("contiguous/f32/topk", "contiguous/f32/topk", 50, 15, "not_found_worse"),
              *((ring.replace("{budget}", str(kept)), ring, kept / 2, 0, "worse") for kept in (64, 256))]  # fmt: skip
    return [
        cell_without_times(
            "task", variant, length, workload, series=policy, task="single", query="after", depth=depth, held_bytes_per_token=held, batch=16,
            right=15 if depth == 90 else right, accuracy=(15 if depth == 90 else right) / 16, accuracy_ci_low=(15 if depth == 90 else right) / 20,
            accuracy_ci_high=(16 if depth == 90 else right + 1) / 16, credit=0.9, full_right=15, difference_p=0.01, versus="contiguous",
            usable="no" if (depth, length) == (90, 512) else "yes", verdict="" if (depth, length) == (90, 512) else verdict,
            pooled_questions=48, pooled_right=2 * right + 15, pooled_full_right=45,
        ) | {"cell": f"task-{variant}-{length}-{depth}"}
        for variant, policy, held, right, verdict in caches for length in (512, 1024) for depth in (10, 90)
    ]  # fmt: skip


UNIFORM = "contiguous/f16/snapkv(budget=96)"
BESIDE = {  # variant: (loss less the baseline's, whose interval is 0.1 on either side; bytes)
    UNIFORM: (0, 300), "contiguous/f16/ada(budget=96)": (0.05, 300), "contiguous/f16/h2o(heavy=64,recent=64)": (-0.7, 303),
    "contiguous/f16/snapkv(budget=128) + 1:contiguous/f16/snapkv(budget=64)": (0.4, 298),
    "contiguous/f16/ring(window=64) + 1:contiguous/f16/duo(retrieval=0)": (-0.2, 305),
    "contiguous/f16/duo(retrieval=0.5)": (-2, 600),
}  # fmt: skip


def beside_cells(workload) -> list[dict]:
    """Losses compared with a variant that the config names: budgets by layer and head, of its bytes but for one."""
    cells = []
    for experiment, length, distance in (("quality", 1024, None), ("recall", 403, 300)):
        for variant, (change, held) in BESIDE.items():
            change = change * (1 if distance else 0.3)
            verdict = "baseline" if variant == UNIFORM else "ambiguous" if abs(change) < 0.1 else "worse" if change > 0 else "better"
            cells.append(cell_without_times(
                experiment, variant, length, workload, series=variant, kept_tokens=150, held_bytes_per_token=held, distance=distance,
                passage_tokens=64 if distance else None, predictions=1000, loss=3 + change, loss_se=0.1, perplexity=math.exp(3 + change),
                loss_change=change, loss_change_ci_low=change - 0.1, loss_change_ci_high=change + 0.1, verdict=verdict, versus=UNIFORM,
                bytes_read=100, **around("kl_mean", 2 + change, 0.1), **around("top1_agreement", 0.9, 0.01)))  # fmt: skip
    return cells


STREAM = {"contiguous/f32/full": 1.5, "contiguous/f32/ring(window=256)": 0, "recompute(window=256,stride=32)": 0}


def stream_cells(workload) -> list[dict]:
    """A cache that keeps all fails beyond the trained context; a window does not."""
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
    """Windows are exact until they evict."""
    return [
        {"cell": cell["cell"], "variant": cell["variant"], "seq_len": 1024, "position_first": first,
         "position_last": last, "predictions": 8 * (last - first + 1), "loss": 2, "loss_se": 0.1,
         "top1_agreement": 0.97, **around("kl_mean", 0 if last < cell["kept_tokens"] < 1024 else cell["kl_mean"], 0.2)}
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
