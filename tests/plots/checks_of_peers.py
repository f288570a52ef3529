"""The expected data of the chart of other engines, for drawn_data_test."""

from __future__ import annotations

from drawn import drawn, points, title

COLUMNS = {"hot": "peer_ratio", "cold": "peer_cold_ratio"}


def check_peers(spec, files):
    engines = [row for row in files.of("decode") if row["peer"]]
    assert {row["variant"] for row in engines} > {"ggml/q8_0"} and title(spec, "x").startswith("time of a step / that of kvlab")
    states = [(row, state, column) for row in engines for state, column in COLUMNS.items() if row[f"{column}_p50"]]
    assert len(engines) < len(states) < 2 * len(engines)  # one has no cold times
    want = points((row["variant"], state, row[f"{column}_p50"]) for row, state, column in states)
    assert drawn(spec, "point", "y", "color", "x") == want
    want = points((row["variant"], state, row[f"{column}_ci_low"], row[f"{column}_ci_high"]) for row, state, column in states)
    assert drawn(spec, "rule", "y", "color", "x", "x2") == want
