"""The heat tables over shapes: % of roofline, and times over the baseline's."""

from __future__ import annotations

import polars as pl
import pytest
from data import load_run
from figures.roofline import roofline_table, time_table
from prepare import NoData, measured
from style import natural_order
from synthetic import SYNTHETIC, synthetic_run


def test_shapes_are_coloured_by_what_limits_them(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 4096), later=True, one_thread=True), "run")
    cells, names = measured(run.cells), natural_order(SYNTHETIC)
    drawn = roofline_table(cells, names).data
    assert set(drawn["panel"]) == {"8/4 heads of 64 · cold", "8/4 heads of 64 · hot"}
    by = {(row["variant"], row["panel"].split()[-1], row["column"]): row for row in drawn.to_dicts()}
    # One thread was not measured hot.
    assert len(by) == 6 * 2 * 3 and ("contiguous/f32/full", "hot", "256 · 1t") not in by
    f32, f16 = (by[f"contiguous/{codec}/full", "hot", "4K · 2t"] for codec in ("f32", "f16"))
    assert (f32["kind"], f32["label"], f32["small"]) == ("memory · 50–70 %", "50", "")
    assert (f16["kind"], f16["label"], f16["small"]) == ("compute · 90 % and more", "90", "(70)")
    assert all(row["kind"].startswith("memory") for key, row in by.items() if key[1] == "cold")
    # The share's interval is that of the time, the other way round.
    for row in (row for row in by.values() if row["low_text"] != "–"):
        low, share, high = (float(row[f"{name}_text"].rstrip("%")) for name in ("low", "ceiling_share", "high"))
        assert low == pytest.approx(share / 1.1, rel=0.01) and high == pytest.approx(share / 0.95, rel=0.01)
    # If hot reads are no faster than cold ones, no cache holds the rows.
    slow = cells.with_columns(ceiling_gbps=1.2 * pl.col("cold_ceiling_gbps"))
    assert set(roofline_table(slow, names).data["panel"]) == {"8/4 heads of 64 · cold"}


def test_shapes_of_older_folders_have_no_roofline(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 512), later=True, one_thread=True), "run")
    older = measured(run.cells).with_columns(
        **{column: pl.lit(None, run.cells.schema[column]) for column in run.cells.columns if "bound" in column},
        **{column: pl.lit(None, pl.Float64) for column in ("ratio_p50", "cold_ratio_p50")},
    )
    drawn = roofline_table(older, natural_order(SYNTHETIC)).data
    assert {kind.split()[0] for kind in drawn["kind"]} == {"memory"}
    with pytest.raises(NoData, match="compared with a baseline"):
        time_table(older, natural_order(SYNTHETIC))


def test_times_are_classed_against_the_baseline(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 512), later=True, one_thread=True), "run")
    drawn = time_table(measured(run.cells), natural_order(SYNTHETIC)).data
    kinds = {(row["variant"], row["panel"].split()[-1]): row["kind"] for row in drawn.to_dicts()}
    assert kinds["contiguous/f16/full", "hot"] == "0.55–0.8"  # 0.012 / 0.020
    assert kinds["contiguous/f16/full", "cold"] == "below 0.55"
    assert kinds["concat/f32/full", "cold"] == "1.25 and more"
