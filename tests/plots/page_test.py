"""The page: names of figures, and escaping of values."""

from __future__ import annotations

import polars as pl
import pytest
from figures.figure import Figure
from page import Drawn, script_json, status_counts
from prepare import layers_said
from tables import common, named_rows

FIGURE = Figure("latency", "Step latency", "time", "Lower is better.", lambda tables: None)


@pytest.mark.parametrize(("text", "name"), [
    ("Step latency", "Step latency"),
    ("concat takes 4×", "Step latency: concat takes 4×"),
    (["concat takes 4×", "at 1K tokens"], "Step latency: concat takes 4× at 1K tokens"),
    ({"expr": "'Step latency at ' + length"}, "Step latency"),
])
def test_a_figure_is_named_by_what_it_draws_and_by_its_message(text, name):
    assert Drawn(FIGURE, {"title": {"text": text}}, "").name == name


def test_noise_is_said_where_cells_are_counted():
    """With 35 of 42 disturbed, '42 ok' alone would mislead; the noise of one that failed is not counted."""
    rows = [("ok", "others took 40 %", 1.0)] * 35 + [("ok", None, 1.0)] * 7 + [("failed", "others took 40 %", None)]
    assert status_counts(pl.DataFrame(rows, schema=["status", "noise", "step_p50_us"], orient="row")) == [("ok", 42), ("failed", 1), ("noisy", 35)]


@pytest.mark.parametrize(("layers", "of", "said"), [(1, 32, "one layer of 32"), (2, 32, "2 layers of 32"), (24, 24, "all 24 layers"),
                                                    (1, 1, "one layer"), (1, None, "one layer"), (6, None, "6 layers")])  # fmt: skip
def test_a_part_of_a_model_is_never_called_all_of_it(layers, of, said):
    assert layers_said(pl.DataFrame({"layers": [layers, layers], "model_layers": [of, of]})) == said


def test_no_text_ends_the_script_that_it_stands_in():
    assert script_json({"variant": "</script><b>"}) == '{"variant":"\\u003c/script>\\u003cb>"}'


def test_a_row_whose_policy_had_nothing_to_evict_says_so():
    rows = pl.DataFrame({"cell_index": [0, 1], "variant": ["contiguous/ring(window=9)", "contiguous"], "keeps_all": [1.0, None]})
    assert [common(row)["keeps_all"] for row in named_rows(rows)] == [True, False]
