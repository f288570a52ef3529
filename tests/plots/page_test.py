"""The page: names of figures, round budgets, and escaping of values."""

from __future__ import annotations

import polars as pl
import pytest
from answers import Within
from figures.figure import Figure
from page import Drawn, budget, script_json
from tables import common, named_rows

FIGURE = Figure("latency", "Step latency", "Lower is better.", lambda tables: None)


@pytest.mark.parametrize(("text", "name"), [
    ("Step latency", "Step latency"),
    ("concat takes 4×", "Step latency: concat takes 4×"),
    (["concat takes 4×", "at 1K tokens"], "Step latency: concat takes 4× at 1K tokens"),
    ({"expr": "'Step latency at ' + length"}, "Step latency"),
])
def test_a_figure_is_named_by_what_it_draws_and_by_its_message(text, name):
    assert Drawn(FIGURE, {"title": {"text": text}}, "").name == name


def test_the_first_budget_is_a_round_number_in_the_middle():
    steps = [Within(size, [], True) for size in (30 * 1024, 100 * 1024, 3000 * 1024)]
    assert budget(steps) == "300"


def test_no_text_ends_the_script_that_it_stands_in():
    assert script_json({"variant": "</script><b>"}) == '{"variant":"\\u003c/script>\\u003cb>"}'


def test_a_row_whose_policy_had_nothing_to_evict_says_so():
    rows = pl.DataFrame({"cell_index": [0, 1], "variant": ["contiguous/ring(window=9)", "contiguous"], "keeps_all": [1.0, None]})
    assert [common(row)["keeps_all"] for row in named_rows(rows)] == [True, False]
