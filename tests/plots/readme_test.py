"""README's pictures and headline: drawn and said from what is committed."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from data import load_run
from figures.list import FIGURES
from report import specification, tables_of

HOME = Path(__file__).resolve().parents[2]
README = (HOME / "README.md").read_text()
PICTURES = re.findall(r"!\[[^]]*\]\((results/[^)]*)/figures/(\w+)\.png\)", README)


@pytest.mark.parametrize(("folder", "name"), PICTURES)
def test_a_picture_can_be_drawn_again(folder, name):
    """NoData names what is not committed."""
    assert (HOME / folder / "figures" / f"{name}.png").exists()
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    assert specification(figure, tables_of([load_run(HOME / folder, "run")]), [])["data"]["values"]


def test_the_headline_is_what_its_picture_draws():
    """One quantity for both: the time of all appends over the baseline's, with its interval."""
    ((folder, name),) = PICTURES
    assert name == "growth_total"
    headline = re.search(r"\*\*(At 4,096 tokens.*?)\*\*", README, re.S)[1]
    with (HOME / folder / "cells.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file) if row["seq_len"] == "4096" and row["verdict"] != "aa_test"}
    said = re.findall(r"([\d.]+) times[^(]*\(([\d.]+)–([\d.]+)\)", headline)
    columns = [f"append_total_ratio_{end}" for end in ("p50", "ci_low", "ci_high")]
    want = [tuple(f"{float(rows[variant][column]):.{digits}f}" for column in columns) for variant, digits in (("concat", 0), ("doubling", 1))]
    assert said == want
