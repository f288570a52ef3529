"""Computations of the charts of growth runs."""

from __future__ import annotations

import polars as pl
import pytest
from data import load_run
from figures.growth import against_baseline, growth_totals, longest_growth, median_steps, slowest_reallocation, thin, with_reallocations
from prepare import measured
from support import left_out, reported
from synthetic import synthetic_run


def test_thinning_keeps_every_spike(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", growth_to=4096), "run")
    steps = median_steps(run.growth.with_columns(panel=run.growth["cell"], length=run.growth["token"]))
    kept = thin(steps, 2000)
    assert 1000 < kept.height <= 2000
    doubling = steps.filter(steps["variant"] == "doubling/f32/full")
    spikes = doubling.filter(doubling["step_us"] > 120)
    assert sorted(spikes["length"].unique()) == [512, 1024, 2048, 4096]
    assert spikes.join(kept, on=["variant", "length"], how="anti").is_empty()
    assert kept.join(steps, on=["variant", "length", "step_us"], how="anti").is_empty()


def test_growth_totals_tell_linear_from_quadratic(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(), growth_to=4096), "run")
    totals = growth_totals(measured(run.cells))
    total = {(variant, length): us for variant, length, us in totals["variant", "seq_len", "append_total_us"].iter_rows()}
    assert total["contiguous/f32/full", 4096] == pytest.approx(4096 * (1.05 * 0.2 + 0.05))  # halfway between two repetitions
    assert 3.8 < total["concat/f32/full", 4096] / total["concat/f32/full", 2048] < 4
    assert 1.9 < total["doubling/f32/full", 4096] / total["doubling/f32/full", 2048] < 2.1
    said = against_baseline(totals, "contiguous/f32/full")
    assert said.startswith("Time of all 4,096 appends over that of contiguous f32: concat f32 84× (75–100), doubling(read=copy) f32 67× "), said
    over = pl.col("append_total_ratio_p50") / pl.col("append_total_ratio_p50").max().over("seq_len")
    near = totals.with_columns(append_total_ratio_p50=over, append_total_ratio_ci_low=0.5 * over, append_total_ratio_ci_high=1.5 * over)
    assert "concat f32, " in (said := against_baseline(near, "contiguous/f32/full")) and said.endswith("statistically tied with it")


def test_a_run_whose_steps_are_not_there_is_no_run_that_was_not_made(tmp_path):
    """Committed folders leave growth.csv out."""
    folder = synthetic_run(tmp_path / "run", lengths=(), growth_to=256)
    (folder / "growth.csv").unlink()
    reported(folder)
    reasons = left_out(folder)
    assert "growth_total" not in reasons
    assert reasons["growth"] == reasons["reallocations"] == "growth.csv, which has every step, is not in the folder"


def test_tokens_may_count_from_zero(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(), growth_to=256), "run")
    from_zero = run.growth.with_columns(token=run.growth["token"] - 1)
    for growth in (run.growth, from_zero):
        lengths = longest_growth(growth, measured(run.cells))["length"]
        assert (lengths.min(), lengths.max()) == (1, 256)


def test_steps_that_reallocate_are_those_of_doubling(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(), growth_to=1024), "run")
    steps = with_reallocations(median_steps(longest_growth(run.growth, measured(run.cells))))
    found = steps.filter("reallocates")
    assert set(found["variant"]) == {"doubling/f32/full", "doubling(read=copy)/f32/full"}
    assert {64, 128, 256, 512, 1024} <= set(found["length"]) <= {float(1 << power) for power in range(11)}
    assert "waits at 1,024 tokens in every repetition" in slowest_reallocation(steps)
    assert slowest_reallocation(steps.with_columns(reallocates=False)) is None
