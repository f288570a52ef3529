"""The expected data of the charts of tiers, for drawn_data_test."""

from __future__ import annotations

import re

from drawn import drawn, points, title

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def of_tiers(files):
    return [row for row in files.of("decode") if row["bytes_warm"] is not None]


def check_tier_time(spec, files):
    cells = of_tiers(files)
    assert title(spec, "y") == "time of attention, p50 [µs]"
    at = lambda row: (row["variant"], row["seq_len"])
    times = points((*at(row), row["attend_p50_us"]) for row in cells)
    assert drawn(spec, "point", "color", "x", "y") == times
    reading = lambda row, *tiers: sum(row[f"read_{tier}_bytes"] / row[f"{tier}_ceiling_gbps"] / 1e3 for tier in tiers
                                      if row[f"read_{tier}_bytes"])  # fmt: skip
    memory = points((*at(row), reading(row, "hot", "warm")) for row in cells)
    disk = points((*at(row), reading(row, "disk") or None) for row in cells)
    assert 0 < len(disk) < len(memory)
    assert drawn(spec, "line", "color", "x", "y") == times + memory + disk


def check_tier_bytes(spec, files):
    unit = UNITS[re.search(r"\[(\w+)\]", title(spec, "x"))[1]]
    want = points((row["variant"], tier, row[f"bytes_{tier}"] / unit) for row in of_tiers(files)
                  for tier in ("hot", "warm", "disk") if row[f"bytes_{tier}"])  # fmt: skip
    assert drawn(spec, "bar", "y", "color", "x") == want


def check_tier_hidden(spec, files):
    assert title(spec, "y") == "share of reading that is hidden"
    want = points((row["variant"], row["seq_len"], row["disk_hidden_share"]) for row in of_tiers(files))
    assert drawn(spec, "line", "color", "x", "y") == drawn(spec, "point", "color", "x", "y") == want
