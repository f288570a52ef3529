"""The geometry of the synthetic model, a cell of it, and what the program says of variants and columns."""

from __future__ import annotations

import re

import polars as pl

LAYERS, MODEL_LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM = 2, 32, 8, 4, 64


def cell_without_times(experiment, variant, length, workload, **columns) -> dict:
    return {
        "cell": f"{experiment}-{variant}-{length}", "variant": variant, "device": "cpu", "threads": 2,
        "experiment": experiment, "phase": "decode", "workload": workload, "layers": LAYERS, "q_heads": Q_HEADS,
        "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "batch": 1, "seq_len": length, "status": "ok",
        "bytes_payload": 1000, "bytes_metadata": 0, "bytes_slack": 0, "bytes_workspace_peak": 0, **columns,
    }  # fmt: skip


STAGES = ["placement", "codec", "retention", "selection", "layer_specs", "oracle", "bits_per_value"]
SELECTIONS, CODECS = {"all", "quest", "topk"}, {"f32", "f16", "bf16", "q8_0", "q4_0", "fp8", "mxfp8", "token", "kivi"}
BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q4_0": 4.5, "token(bits=4)": 4.25, "token(bits=2)": 2.25,
        "kivi(bits=4,group=32,residual=128)": 5}  # fmt: skip
NO_CACHE = ("recompute", "no_cache", "padded", "unpadded")


def with_stages(cell: dict) -> dict:
    """With the stages of its variant, as the program writes them: this is what knows the form of a spec here."""
    variant = cell["variant"]
    spec, _, layers = variant.partition(" + ")
    placement, *rest = re.split(r"/(?![^(]*\))", spec)
    if cell.get("peer") or placement.startswith(NO_CACHE):
        codec = rest[0] if cell.get("peer") and rest and rest[0] in BITS else ""
        return {**cell, **dict.fromkeys(STAGES, ""), "codec": codec}
    found = {"codec": "f32", "retention": "full", "selection": "all"}
    for part in rest:
        name = part.partition("(")[0]
        found["selection" if name in SELECTIONS else "codec" if name in CODECS else "retention"] = part
    return {**cell, "placement": placement, **found, "layer_specs": layers,
            "oracle": "reads every row to choose" if found["selection"].startswith("topk") else None, "bits_per_value": BITS.get(found["codec"], "")}


def in_words(variant: str) -> str:
    """What the program would write as its label, for these tests: the stages that are no defaults, with spaces between."""
    cell = with_stages({"variant": variant})
    said = [cell[stage] for stage, usual in (("codec", ""), ("retention", "full"), ("selection", "all")) if cell[stage] not in (usual, "")]
    return " ".join(filter(None, [cell["placement"], *said, cell["layer_specs"]])) or variant


# Titles of a panel, by axis; None where values lie within a panel.
AXES = {
    "device": "{}", "experiment": "{}", "phase": "{}", "workload": "{}", "layers": "{} layers", "q_heads": "{} query heads",
    "kv_heads": "{} KV heads", "head_dim": "head dim {}", "batch": "batch {}", "threads": "{} threads", "seq_len": None,
    "lengths": None, "chunk_tokens": "by {} tokens", "distance": None, "passage_tokens": "passage of {} tokens", "temperature": None,
    "task": "{}", "query": "question {} compression", "depth": "depth {} %",
    "arrivals": "{}", "machine": "{} of memory", "step_tokens": "steps of {} tokens", "batching": "batching {}", "proposed_tokens": "drafts of {} tokens",
}  # fmt: skip
ARMS = ("chunk_tokens", "batching", "proposed_tokens")  # parts of a row's name
WRITERS = {"perplexity": ["quality", "recall", "stream"], "common_tokens_p50": ["generate"], "running_p50": ["replay"], "replay_tpot_p99_ms": ["serve"],
           "acceptance": ["speculate"]}  # fmt: skip
TEXTS = """cell variant device experiment phase workload lengths arm status reason kernel bound cold_bound series versus verdict batching
    weights weights_type context host arrivals machine preempt clusters counts_from times_from peer peer_versus peer_settings
    peer_version noise tier_bound simulated task query usable""".split() + STAGES[:-1]


HEADINGS = {"step_p50_us": "step, p50", "prefill_p50_us": "prompt, p50", "ratio_p50": "time / baseline", "append_total_us": "all appends",
            "append_total_ratio_p50": "all appends / baseline", "held_bytes_per_token": "bytes a token", "bits_per_value": "bits",
            "err_rel_l2": "error, rel. L2", "kl_mean": "KL, mean", "requests_per_s": "requests/s", "goodput_per_s": "good requests/s",
            "served_tokens_per_s": "output tok/s", "ttft_p99_s": "TTFT, p99", "tpot_p99_ms": "TPOT, p99", "held_peak_bytes": "held at the peak"}  # fmt: skip


def described() -> list[dict]:
    """columns.json: what charts have to know of the columns."""
    names = dict.fromkeys([*TEXTS, *AXES, *WRITERS, *HEADINGS])
    return [
        {"name": name, "type": "text" if name in TEXTS else "number", "experiments": WRITERS.get(name, []), "heading": HEADINGS.get(name, ""),
         **({"axis": True} if name in AXES else {}), **({"title": AXES[name]} if AXES.get(name) else {}), **({"arm": True} if name in ARMS else {})}
        for name in sorted(names, key=lambda name: list(AXES).index(name) if name in AXES else -1)
    ]  # fmt: skip


def learn_names(names, labels={}, series={}) -> None:
    """As if a folder with these variants had been read."""
    from columns import Column
    from known import learn

    axes = {name: Column(name, "text" if name in TEXTS else "number", is_axis=True, title=title or "", is_arm=name in ARMS) for name, title in AXES.items()}
    axes |= {name: Column(name, heading=heading) for name, heading in HEADINGS.items()}
    learn(pl.DataFrame([with_stages({"variant": name, "label": labels.get(name), "series": series.get(name, name)}) for name in ["contiguous", *names]], infer_schema_length=None), axes)
