"""Experiments with figures of their own: prefill, batch and recall; and folders from before there were such."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import polars as pl
import pytest
from data import load_run
from figures.budget import best_policies
from figures.list import FIGURES
from figures.models import by_kept_tokens, warning_if_tiny
from figures.prefill import prefill_arms
from figures.recall import by_budget
from pictures import to_svg
from prepare import measured, of_experiment, with_panel
from report import specification, tables_of
from support import left_out, reported
from synthetic import synthetic_run
from synthetic_models import MODEL_SERIES

ROOT = Path(__file__).parents[2]


def test_later_experiments_do_not_disturb_the_others(tmp_path):
    """Their cells are in figures of their own; and a folder from before them says so."""
    before, after = synthetic_run(tmp_path / "before"), synthetic_run(tmp_path / "after", later=True)
    reported(before, after)
    for name in (
        "budget", "checkpoint", "prefill_workspace", "prefill_time", "batch_waste", "quality_kl", "quality_loss",
        "kl_position", "recall", "recall_budget", "stream", "eval_error", "eval_heads",
    ):  # fmt: skip
        assert name in left_out(before)
        assert (after / "figures" / f"{name}.svg").exists()
    for name in ("memory", "bytes", "latency"):
        same = [(folder / "figures" / f"{name}.svg").read_text() for folder in (before, after)]
        assert same[0] == same[1], name


def test_prefill_has_a_line_an_arm(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", lengths=(256, 1024), later=True), "run")
    arms = prefill_arms(measured(run.cells), "prefill_p50_us")
    chunks = {"materialised chunked by 64 tokens", "chunked by 64 tokens", "chunked by 128 tokens"}
    assert set(arms["arm_text"]) == {"materialised", "tiled", *chunks}
    assert arms["panel"].n_unique() == 1
    assert set(tables_of([run]).common["seq_len"]) == {256, 1024}


def test_recall_is_drawn_against_distance_and_against_budget(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", later=True), "run")
    recalls = of_experiment(measured(run.cells), "recall", "loss", "distance")
    by_distance = by_kept_tokens(with_panel(recalls))
    panels = ["every token kept", "64 tokens kept", "256 tokens kept"]
    assert list(dict.fromkeys(by_distance["panel"])) == panels
    forgetful = by_distance.filter(by_distance["panel"] != panels[0])
    assert set(forgetful["variant"]) == {series for series in MODEL_SERIES if "{" in series}
    rows, full = by_budget(recalls)
    assert list(dict.fromkeys(rows["panel"])) == ["distance 100", "distance 200", "distance 400"]
    assert rows["kept_tokens"].to_list() == [64, 256] * 6
    assert set(full["variant"]) == {"contiguous/f32/full"} and rows["full_loss"].to_list() == [0.1] * 12
    assert [loss > 6 for loss in rows["loss"]] == [True, False] * 4 + [True, True] * 2


def test_charts_warn_of_tiny_models_alone():
    run = load_run(ROOT / "results/epyc-2core/field", "field")
    assert "Tiny models" in warning_if_tiny(tables_of([run]))
    large = load_run(ROOT / "results/epyc-2core/codebooks", "codebooks")
    assert warning_if_tiny(tables_of([large])) == ""
    assert "Tiny models" in warning_if_tiny(tables_of([run, large]))
    unknown = dataclasses.replace(large, cells=large.cells.drop("model_layers"))
    assert "Tiny models" in warning_if_tiny(tables_of([unknown]))


def test_policies_that_are_equally_good_are_named_together():
    def rows(panel, errors):
        return [{"panel": panel, "seq_len": 512, "variant": name, "error": error * 64 / kept}
                for name, error in errors.items() for kept in (64, 128)]  # fmt: skip

    clear = rows("sinks", {"a": 1.0, "b": 1.03, "c": 2.0})
    alike = rows("gaussian", dict.fromkeys("abcde", 1.0))
    lone = [{"panel": "sinks", "seq_len": 512, "variant": "codec", "error": 0.001}]
    said = best_policies(pl.DataFrame(clear + alike + lone))
    assert said == {512: "Least error of the policies at 512 tokens: sinks: a, b; no policy stands out on gaussian"}


def test_caches_have_one_label_each_in_all_that_is_committed():
    labels = {}
    for path in sorted((ROOT / "results").glob("*/*/cells.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row.get("placement"):
                    assert labels.setdefault(row["variant"], row["label"]) == row["label"] != "", f"{path}: {row['variant']}"
    assert len(labels) > 300 and len(set(labels.values())) == len(labels)
    assert (labels["contiguous"], labels["paged/q8_0"], labels["contiguous/kivi(bits=2,residual=0)"]) == ("contiguous f32", "paged q8_0", "kivi 2-bit")


@pytest.mark.parametrize(("folder", "name"), [("epyc-2core/budget", "budget"), ("epyc-4core/selection", "recall_budget"), ("epyc-2core/tasks", "task_bytes")])
def test_no_chart_shows_a_spec_or_a_placeholder(folder, name):
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    shown = re.findall(r"<text[^>]*>([^<]*)", to_svg(specification(figure, tables_of([load_run(ROOT / "results" / folder, "run")]), [])))
    assert shown and not [words for words in shown if "{" in words or "contiguous/" in words or "(budget" in words]
