"""Cells of placements with several tiers, by formula: 64 rows hot, 128 warm, the rest in a file."""

from __future__ import annotations

from synthetic_shape import HEAD_DIM, KV_HEADS, LAYERS, cell_without_times

HOT, WARM = 64, 128


def tier_cells(lengths=(128, 512, 2048)) -> list[dict]:
    """Memory gives 20 GB/s, a file 2; attention takes 1.2 times the longer of the two, and hides half of the reading."""
    cells = []
    for variant, size, hidden in (("tiered(hot=64,warm=128)/f32/full", 4, 0.5), ("tiered(hot=64,warm=128)/f16/full", 2, 0.7)):
        for length in lengths:
            rows = {"hot": min(HOT, length), "warm": min(WARM, max(0, length - HOT)), "disk": max(0, length - HOT - WARM)}
            held = {tier: 2 * LAYERS * KV_HEADS * HEAD_DIM * size * count for tier, count in rows.items()}
            memory, disk = (held["hot"] + held["warm"]) / 20e3, held["disk"] / 2e3
            of_file = {"disk_ceiling_gbps": 2, "disk_read_gbps": 1.8, "disk_hidden_share": hidden} if disk else {}
            cells.append(
                cell_without_times("decode", variant, length, "gaussian", **{f"bytes_{tier}": count for tier, count in held.items()},
                                   **{f"read_{tier}_bytes": count for tier, count in held.items()}, hot_ceiling_gbps=20,
                                   warm_ceiling_gbps=20, attend_p50_us=1.2 * max(memory, disk), tier_bound_us=max(memory, disk),
                                   tier_bound="disk" if disk > memory else "memory", tier_bound_share=1 / 1.2, **of_file)
            )  # fmt: skip
    return cells
