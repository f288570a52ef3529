"""The expected data of the charts of replays and of serving, for drawn_data_test."""

from __future__ import annotations

import re

from drawn import drawn, points, title
from synthetic_shape import in_words

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def most_loaded(files):
    """(cell, stretch) of the machine on which most requests wait."""
    worst = max(files.of("replay"), key=lambda row: row["waiting_p99"])
    return [(cell, row) for cell, row in files.moments if cell["machine"] == worst["machine"]]


def check_replay_requests(spec, files):
    assert title(spec, "y") == "requests"
    stretches = most_loaded(files)
    assert len({cell["variant"] for cell, _ in stretches}) == 3
    want = points((row["variant"], kind, row["time_s"], row[kind]) for _, row in stretches for kind in ("running", "waiting"))
    found = drawn(spec, "line", "color", "x", "y")
    assert found == points(row[1:] for row in want.elements())


def check_replay_memory(spec, files):
    unit = UNITS[re.search(r"\[(\w+)\]", title(spec, "y"))[1]]
    kinds = ["payload", "other", "cached", "slack"]  # upwards
    upto = lambda row, count: sum(row[f"{kind}_bytes"] for kind in kinds[:count]) / unit  # noqa: E731
    want = points((kind, row["time_s"], upto(row, i), upto(row, i + 1)) for _, row in most_loaded(files)
                  for i, kind in enumerate(kinds))  # fmt: skip
    assert drawn(spec, "area", "color", "x", "y", "y2") == want


def check_replay_concurrency(spec, files):
    cells = files.of("replay")
    assert title(spec, "x") == "sequences that run at once"
    for mark, column in (("bar", "running_p50"), ("tick", "running_p99"), ("point", "running_peak")):
        assert drawn(spec, mark, "y", "x") == points((row["variant"], row[column]) for row in cells)


def check_hit_rate(spec, files):
    kinds = {"least recently used": "hit_rate", "Belady's optimum": "belady_hit_rate", "without limit": "hit_rate_at_any"}
    rows = [row for _, row in files.hits if row["variant"] == "contiguous/f16/full"]
    want = points((kind, row["capacity_bytes"], row[column]) for row in rows for kind, column in kinds.items())
    assert drawn(spec, "line", "color", "x", "y") == want


def check_times(spec, files, column):
    cells = files.of("serve")
    assert len(cells) == 9
    arm = lambda row: row["batching"] if isinstance(row["batching"], str) else f"{row['batching']:.0f}"  # noqa: E731
    assert drawn(spec, "point", "y", "color", "x") == points((row["variant"], arm(row), row[column]) for row in cells)
    ends = points((row["variant"], arm(row), row[f"{column}_ci_low"], row[f"{column}_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "y", "color", "x", "x2") == ends


def check_serve_ttft(spec, files):
    assert title(spec, "x") == "time to the first token, p99 [s]"
    check_times(spec, files, "ttft_p99_s")


def check_serve_tpot(spec, files):
    assert title(spec, "x") == "time of each further token, p99 [ms]"
    check_times(spec, files, "tpot_p99_ms")


def check_acceptance(spec, files):
    cells = files.of("speculate")
    assert len(cells) == 4 and title(spec, "x") == "accepted / proposed tokens"
    arm = lambda row: f"{row['proposed_tokens']:.0f}"  # noqa: E731
    assert drawn(spec, "point", "y", "color", "x") == points((row["variant"], arm(row), row["acceptance"]) for row in cells)
    ends = points((row["variant"], arm(row), row["acceptance_ci_low"], row["acceptance_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "y", "color", "x", "x2") == ends


def check_serve_held(spec, files):
    unit = UNITS[re.search(r"\[(\w+)\]", title(spec, "x"))[1]]
    kinds = ["payload", "other", "cached", "slack"]
    cells = files.of("serve")
    want = points((f"{in_words(row['variant'])}, batching {str(row['batching']).removesuffix('.0')}", kind, row[f"{kind}_mean_bytes"] / row["running_mean"] / unit) for row in cells for kind in kinds)
    assert drawn(spec, "bar", "y", "color", "x") == want
