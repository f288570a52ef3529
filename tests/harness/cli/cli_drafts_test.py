"""Steps that verify drafts, from a config to the terminal."""

import pytest
from program import HOME, by_variant, cells_of, kvlab

CONFIG = HOME / "configs" / "ci.toml"
TINY = {"experiment": "decode", "sweep.seq_len": [128], "sweep.batch": [1], "measure.repetitions": 2, "measure.steps": 24,
        "sweep.variants": ["contiguous/f16", "contiguous/f16/ring(window=64)"]}  # fmt: skip


def test_drafts_are_shown_below_the_steps(tmp_path):
    full, ring = by_variant(cells_of(CONFIG, tmp_path / "out", {**TINY, "measure.draft": 4, "measure.accept": 0.5})).values()
    shown = " ".join(kvlab("summary", tmp_path / "out", "--table", "full").stdout.split())
    assert "4 drafts per step tokens that stay" in shown
    assert "no drafts with f16 ring 64: cannot truncate" in shown and "a full cache overwrites rows" in shown
    assert (full["draft_tokens"], full["draft_refused"]) == ("4", "") and 1 < float(full["draft_stays_mean"]) < 5
    token = float(full["draft_step_p50_us"]) / float(full["draft_stays_mean"])
    assert float(full["draft_ratio_p50"]) == pytest.approx(token / float(full["step_p50_us"]), rel=1e-6)
    assert ring["draft_step_p50_us"] == "" and ring["status"] == "ok"
