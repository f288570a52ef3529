"""Lines through step times and their crossings, as the terminal's summary has them."""

from __future__ import annotations

import json
import re

import pytest
from lines import crossing, fit_line, student, trusted_line
from support import PLOTS, reported

LENGTHS = (256, 512, 1024, 2048, 4096)


def test_students_quantiles():
    tables = {1: 12.7062, 2: 4.30265, 3: 3.18245, 8: 2.30600, 11: 2.20099, 60: 2.00030}
    assert {degrees: student(degrees) for degrees in tables} == pytest.approx(tables, rel=1e-5)


def test_only_steps_that_a_line_describes_have_one():
    straight = [(x, 10 + 0.02 * x) for x in LENGTHS]
    line = trusted_line(straight)
    assert (line.intercept, line.slope, line.squares) == pytest.approx((10, 0.02, 0))
    assert trusted_line([(x, 10 + 1e-4 * x * x) for x in LENGTHS]) is None
    assert fit_line(straight[:3]) and trusted_line(straight[:3]) is None, "none is left out of three"
    assert crossing(line, line) is None


def test_a_committed_run_is_drawn_as_its_summary_says_it(tmp_path):
    """kvlab summary results/epyc-2core/model: "from about 6420 tokens on (237–11800)"."""
    reported(PLOTS.parent / "results/epyc-2core/model", "--out", tmp_path)
    specs = re.search(r'id="specs">(.*?)</script>', (tmp_path / "report.html").read_text(), re.DOTALL)
    title = " ".join(json.loads(specs[1])["break_even"]["title"]["text"])
    assert title == (
        "batch 1: f16 ring 4096 sinks 4 is faster than kivi 2-bit residual 128 from about "
        "6,420 tokens on (237–11,800)"
    )
