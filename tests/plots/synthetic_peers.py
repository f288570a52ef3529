"""Cells of other engines, by formula."""

from __future__ import annotations

from synthetic_shape import cell_without_times


def peer_cells(lengths=(128, 512, 2048)) -> list[dict]:
    """ggml takes three times as long as kvlab and onnxruntime, which has no cold times, less as caches grow."""
    cells = []
    for length in lengths:
        for engine, name, ratio, has_cold in (("ggml", "f32", 3, True), ("ggml", "q8_0", 3.5, True), ("onnxruntime", "f32", 200 / length, False)):
            own = "contiguous/f32/full" if name == "f32" else "contiguous/q8_0/full"
            cold = {"peer_cold_ratio_p50": 1.1 * ratio, "peer_cold_ratio_ci_low": ratio, "peer_cold_ratio_ci_high": 1.3 * ratio,
                    "cold_attend_p50_us": 12 * ratio}  # fmt: skip
            cells.append(
                cell_without_times("decode", f"{engine}/{name}", length, "gaussian", peer=engine, peer_version="1.2", peer_settings="one <thread>",
                                   peer_versus=own, peer_ratio_p50=ratio, peer_ratio_ci_low=0.9 * ratio, peer_ratio_ci_high=1.2 * ratio,
                                   step_p50_us=10 * ratio, bytes_payload="", bytes_metadata="", bytes_slack="", bytes_workspace_peak="",
                                   **(cold if has_cold else {}))
            )  # fmt: skip
    return cells
