"""From cells as measured to cells as drawn: which rows, in which panels, on the Pareto front or not; and styles."""

from __future__ import annotations

import pytest
from families import VariantStyle
from data import load_run
from prepare import measured, title_of, with_front, with_panel
from style import bytes_text, natural_order
from synthetic import MANY, SYNTHETIC, synthetic_run
from synthetic_shape import learn_names


def test_aa_tests_and_unmeasured_rows_are_not_drawn(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(256,)), "run").cells)
    assert sorted(cells["variant"]) == sorted(SYNTHETIC)


def test_panels_split_by_what_makes_a_difference(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", batches=(1, 4), workloads=("gaussian", "sinks")), "run")
    cells = measured(run.cells)
    assert set(with_panel(cells)["panel"]) == {
        "gaussian · batch 1", "gaussian · batch 4", "sinks · batch 1", "sinks · batch 4"
    }  # fmt: skip
    memory = with_panel(cells, ("workload",), ("bytes_payload",))
    assert set(memory["panel"]) == {"batch 1", "batch 4"}
    assert memory.height == cells.height / 2


@pytest.mark.parametrize("value, title", [(1, "1 thread"), (2, "2 threads"), (16, "16 threads")])
def test_panel_titles_count(value, title):
    learn_names([])
    assert title_of("threads", value) == title


def test_lengths_apart_are_not_one_line(tmp_path):
    """Two experiments at lengths that they do not share cannot be seen to agree: each has a panel."""
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(1024,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 2
    cells = measured(load_run(synthetic_run(tmp_path / "both", lengths=(512,), growth_to=512), "run").cells)
    assert with_panel(cells, ("experiment", "phase"), ("bytes_payload",))["panel"].n_unique() == 1


def test_pareto_front_is_what_nothing_beats(tmp_path):
    cells = measured(load_run(synthetic_run(tmp_path / "run", lengths=(4096,)), "run").cells)
    rows = with_front(with_panel(cells).rename({"bytes_per_token": "per_token", "err_rel_l2": "error"}))
    front = rows.filter(rows["front"])
    assert set(front["variant"]) == {"contiguous/q8_0/full", "contiguous/f16/full", "contiguous/f32/full"}
    for point in rows.iter_rows(named=True):
        beaten = (rows["per_token"] <= point["per_token"]) & (rows["error"] < point["error"])
        assert not (point["front"] and beaten.any())


def test_variants_keep_distinct_styles():
    learn_names(MANY)
    style = VariantStyle(MANY)
    ranges = [encoding["scale"]["range"] for encoding in (style.colour().to_dict(), style.shape().to_dict())]
    assert len(set(zip(*ranges))) == len(MANY) == 30


def test_units_and_order():
    assert [bytes_text(b) for b in (0, 1023, 1536, 1 << 20, None)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1 MiB",
        "–",
    ]
    assert natural_order(["paged(block=16)", "paged(block=4)"]) == ["paged(block=4)", "paged(block=16)"]
