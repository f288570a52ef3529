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
    """One quantity for both: the KL divergence of two caches of equal bytes, with its interval."""
    ((folder, name),) = PICTURES
    assert name == "quality_kl"
    headline = re.search(r"\*\*(In SmolLM2.*?)\*\*", README, re.S)[1]
    with (HOME / folder / "cells.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file) if row["experiment"] == "quality"}
    keys, values = (rows[f"contiguous/split({codecs})"] for codecs in ("k=q8_0,v=q4_0", "k=q4_0,v=q8_0"))
    said = re.findall(r"by ([\d.]+)(?: nats)? \(([\d.]+)–([\d.]+)\)", headline)
    columns = [f"kl_mean{end}" for end in ("", "_ci_low", "_ci_high")]
    assert said == [tuple(f"{float(row[column]):.{digits}f}" for column in columns) for row, digits in ((keys, 4), (values, 3))]
    assert keys["bytes_payload"] == values["bytes_payload"] and "the same bytes" in headline
