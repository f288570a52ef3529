"""The stream experiment, as users meet it: the config that comes with kvlab, shortened, and what is refused."""

import math

from program import HOME, results_of, succeeded, table
from program import run as run_config

SHORT = {
    "stream.variants": ["contiguous", "contiguous/ring(window=64)", "contiguous/ring(window=60,sinks=4,positions=cache)"],
    "stream.recompute": [64], "stream.seq_len": 1280, "stream.step_tokens": 64,
}  # fmt: skip


CONFIG = HOME / "configs" / "stream.toml"
results = results_of(CONFIG, SHORT)


def run(out, changed={}):
    return run_config(CONFIG, out, {**SHORT, **changed})


def test_every_cell_has_its_numbers(results):
    rows = table(results / "cells.csv")
    recomputed = "recompute(window=64,stride=32)"
    assert [row["variant"] for row in rows][-1] == recomputed and len(rows) == 4
    for row in rows:
        assert row["status"] == "ok" and row["predictions"] == "1280" and row["versus"] == recomputed
        assert row["trained_tokens"] == "1024"
        assert math.isclose(float(row["perplexity"]), math.exp(float(row["loss"])), rel_tol=1e-6)
        assert (row["bytes_payload"] == "") == (row["variant"] == recomputed)
        assert (row["chunk_max_diff"] == "") == (row["variant"] == recomputed)
        assert row["variant"] == recomputed or 0 < float(row["chunk_max_diff"]) < 2e-3
    assert rows[-1]["verdict"] == "baseline" and float(rows[-1]["loss_change"]) == 0


def test_buckets_add_up_to_the_cell(results):
    buckets = table(results / "positions.csv")
    for cell in table(results / "cells.csv"):
        own = [row for row in buckets if row["cell"] == cell["cell"]]
        assert [int(row["position_first"]) for row in own] == list(range(0, 1280, 64))
        loss = sum(float(row["loss"]) * int(row["predictions"]) for row in own) / 1280
        assert math.isclose(loss, float(cell["loss"]), rel_tol=1e-6)


def test_chunks_change_nothing(results, tmp_path):
    succeeded(run(tmp_path / "out", {"stream.step_tokens": 1}))
    for one, other in zip(table(results / "cells.csv"), table(tmp_path / "out" / "cells.csv")):
        assert abs(float(one["loss"]) - float(other["loss"])) < 1e-4
