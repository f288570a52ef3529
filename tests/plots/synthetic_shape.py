"""The geometry of the synthetic model, and a cell of it."""

from __future__ import annotations




LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM = 2, 8, 4, 64


def cell_without_times(experiment, variant, length, workload, **columns) -> dict:
    return {
        "cell": f"{experiment}-{variant}-{length}", "variant": variant, "device": "cpu", "threads": 2,
        "experiment": experiment, "phase": "decode", "workload": workload, "layers": LAYERS, "q_heads": Q_HEADS,
        "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "batch": 1, "seq_len": length, "status": "ok",
        "bytes_payload": 1000, "bytes_metadata": 0, "bytes_slack": 0, "bytes_workspace_peak": 0, **columns,
    }  # fmt: skip
