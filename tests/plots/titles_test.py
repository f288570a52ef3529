"""Every chart's title states what it shows, with the numbers of the CSV files, read here by other means than plots/ has."""

from __future__ import annotations

import json
import math
import re

import polars as pl
import pytest
from drawn import Files, places
from figures.list import FIGURES
from figures.memory import least
from support import reported
from synthetic import synthetic_run
from synthetic_shape import learn_names


@pytest.fixture(scope="module")
def drawn(special_reports, tmp_path_factory):
    """The title of each figure as one line, and the files that it was drawn from."""
    common = synthetic_run(tmp_path_factory.mktemp("titles") / "run", lengths=(256, 512), growth_to=300, later=True, one_thread=True)
    reported(common)
    titles = {}
    for run in (*special_reports, common):
        specs = re.search(r'id="specs">(.*?)</script>', (run / "report.html").read_text(), re.DOTALL)
        titles |= {name: in_one_line(spec["title"]["text"]) for name, spec in json.loads(specs[1]).items()}
    return titles, Files(common)


def in_one_line(text):
    """The title at the greatest length of a chart with a menu of lengths."""
    if isinstance(text, dict):
        at_length = json.loads(re.fullmatch(r"\((.*)\)\[length\]", text["expr"])[1])
        text = at_length[max(at_length, key=int)]
    return text if isinstance(text, str) else " ".join(text)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_title_states_a_message(drawn, figure):
    titles, _ = drawn
    assert not titles[figure.name].startswith(figure.title)


def test_a_title_about_memory_names_ties_together_and_the_whole_model():
    learn_names(["contiguous", "contiguous/f16", "doubling/f16", "concat/f16"])
    rows = pl.DataFrame([
        {"variant": name, "panel": "", "bytes_peak": size, "bytes_held": size, "peak_is_measured": True, "layers": 1, "model_layers": 32, "model_bytes": 32 * size}
        for name, size in (("contiguous", 2 << 20), ("contiguous/f16", 1 << 20), ("doubling/f16", (1 << 20) + 100), ("concat/f16", 1 << 20))
    ])  # fmt: skip
    said = "/f16 and 2 others peak lowest, 1 MiB in one layer of 32 (32 MiB in the whole model) or 0.5× that of contiguous,"
    assert least(rows, "contiguous", "bytes_peak").endswith(said)
    assert "others hold the least, 1 MiB" in least(rows, "contiguous", "bytes_held")
    tied = least(rows.filter(pl.col("variant") != "contiguous"), "doubling/f16", "bytes_held")
    assert tied == "No variant holds less than doubling/f16, 1 MiB in one layer of 32 (32 MiB in the whole model),"


def test_the_farthest_recall_is_of_a_policy_within_the_intervals_of_the_full_cache(drawn):
    titles, files = drawn
    ends = lambda row: (row["loss"] - 1.96 * row["loss_se"], row["loss"] + 1.96 * row["loss_se"])
    full = {row["distance"]: ends(row)[1] for row in files.of("recall") if row["verdict"] == "baseline"}
    drops = [row for row in files.of("recall") if row["kept_tokens"] < row["seq_len"]]
    as_well = [row["distance"] for row in drops if ends(row)[0] <= full[row["distance"]]]
    assert f"{max(as_well):,.0f} tokens" in titles["recall"]
    assert f"where any does, {max(as_well):,.0f} tokens" in titles["recall_budget"]


def test_losses_that_change_are_counted(drawn):
    titles, files = drawn
    shown = [row for row in files.of("quality") if row["kl_mean"] and row["loss_change"] is not None]
    changed = [row for row in shown if row["loss_change_ci_low"] > 0 or row["loss_change_ci_high"] < 0]
    worst = max(changed, key=lambda row: abs(row["loss_change"]))
    assert titles["quality_loss"].startswith(f"{len(changed)} of {len(shown)} variants")
    assert f"by {worst['loss_change']:+.2g} nats" in titles["quality_loss"]


def test_what_the_least_read_selection_loses_and_who_is_told_apart_is_said(drawn):
    titles, files = drawn
    quest = [row for row in files.of("quality", "recall") if "/quest(top=0.1)" in row["variant"]]
    ends = [f"{row['loss_change']:.2g}" for row in quest]
    said = re.findall(r"([\d.]+)(?: nats)? \([\d.]+ to [\d.]+\)", titles["quality_read"])
    assert titles["quality_read"].startswith("Of the selections, contiguous f16 quest(top=0.1) reads least and loses ") and sorted(said) == sorted(ends)
    part = [row for row in files.of("quality", "recall") if "/quest(" in row["variant"] or row["kept_tokens"] < row["seq_len"]]
    alike = sum(row["verdict"] != "worse" for row in part)
    assert 0 < alike < len(part) and f"; {alike} of {len(part)} caches" in titles["quality_read"]


def test_errors_with_intervals_say_what_is_on_the_front(drawn):
    titles, files = drawn
    rows = files.of("budget")
    at = [(row["workload"], row["held_bytes_per_token"], row["err_rel_l2"], row["err_ci_low"] or row["err_rel_l2"],
           row["err_ci_high"] or row["err_rel_l2"], row["variant"]) for row in rows]  # fmt: skip
    found = [{row[5] for _, row in places(at) if row[0] == workload} for workload in {row["workload"] for row in rows}]
    everywhere = set.intersection(*found)
    assert 4 < len(everywhere) < len({row[5] for row in at})
    said = re.fullmatch("On the Pareto front at 1,024 tokens, or statistically tied with it: (.*) and (.*) more", titles["budget"])
    assert int(said[2]) == len(everywhere) - 4 and len(re.findall(r", ", said[1])) == 3


def test_budgets_of_other_bytes_are_not_in_the_title(drawn):
    """In synthetic_models.BESIDE duo holds twice the baseline's bytes, and h2o has no budgets by layer or head."""
    titles, _ = drawn
    assert titles["loss_baseline"] == (
        "Budgets by layer or head beside uniform contiguous f16 snapkv(budget=96) of the same bytes; 1,024 tokens of text: contiguous f16 "
        "snapkv(budget=128) 1:contiguous/f16/snapkv(budget=64) loses 0.12 nats more (0.02 to 0.22), 2 of 3 statistically tied; recall 300 "
        "tokens back: contiguous f16 ring(window=64) 1:contiguous/f16/duo(retrieval=0) loses 0.2 nats less (0.1 to 0.3), contiguous f16 "
        "snapkv(budget=128) 1:contiguous/f16/snapkv(budget=64) loses 0.4 nats more (0.3 to 0.5), 1 of 3 statistically tied"
    )


def test_charts_of_losses_over_the_full_cache_leave_out_those_beside_a_baseline(tmp_path):
    run = synthetic_run(tmp_path / "beside", lengths=(256,), beside=True)
    reported(run)
    names = set(json.loads(re.search(r'id="specs">(.*?)</script>', (run / "report.html").read_text(), re.DOTALL)[1]))
    assert {"loss_baseline", "quality_kl"} <= names and not {"quality_loss", "quality_read", "recall_budget"} & names


def test_the_last_stretch_of_a_stream_has_its_lowest_and_highest_perplexity(drawn):
    titles, files = drawn
    rows = [row for cell, row in files.positions if cell["experiment"] == "stream"]
    last = max(row["position_last"] for row in rows)
    found = sorted(math.exp(row["loss"]) for row in rows if row["position_last"] == last)
    assert re.findall(r"(?:perplexity|one) of ([\d.]+)", titles["stream"]) == [f"{found[0]:.3g}", f"{found[-1]:.3g}"]


def test_cells_near_their_roofline_are_counted(drawn):
    titles, files = drawn
    cells = [row for row in files.with_growth() if row["cold_ceiling_share"] is not None]
    hot = [row for row in cells if row["ceiling_gbps"] and row["ceiling_gbps"] >= 1.3 * row["cold_ceiling_gbps"]]
    shares = [row["cold_bound_share"] or row["cold_ceiling_share"] for row in cells]
    shares += [row["bound_share"] or row["ceiling_share"] for row in hot]
    near = sum(share >= 0.7 for share in shares)
    assert titles["kernels"].startswith(f"{near} of {len(shares)} cells reach 70 %")
    assert f"the least is {100 * min(shares):.0f} %" in titles["kernels"]


def test_bytes_over_the_payload_and_workspaces_are_those_of_the_files(drawn):
    titles, files = drawn
    batches = files.of("batch")
    held = lambda row: sum(row[f"bytes_{kind}"] or 0 for kind in ("payload", "metadata", "slack")) / row["bytes_payload"]
    assert f"{held(batches[0]):.2f} bytes" in titles["batch_waste"]
    prompts = [row for row in files.of("prefill") if row["seq_len"] == max(r["seq_len"] for r in files.of("prefill"))]
    most, least = (end(row["bytes_workspace_peak"] for row in prompts) for end in (max, min))
    assert titles["prefill_workspace"].startswith(f"{most / 1024:.0f} KiB with")
    assert f"{most / least:.1f}× the {least / 1024:.0f} KiB with" in titles["prefill_workspace"]


def test_a_whole_models_rate_is_the_baselines_at_its_longest_context(drawn):
    titles, files = drawn
    first = [row for row in files.of("model") if row["verdict"] == "baseline" and row["batch"] == 1]
    longest = max(first, key=lambda row: row["seq_len"])
    assert "takes 0.7× (0.6–0.8) the time of" in titles["model_rate"]
    assert titles["model_rate"].endswith(
        f"decodes {three_digits(longest['tokens_per_s'])} tokens a second at a context of {longest['seq_len']:,.0f} tokens"
    )
    shares = [row["cache_share"] for row in files.of("model") if row["seq_len"] == longest["seq_len"]]
    said = re.findall(r"(\d+)%", titles["model_split"])
    assert said == [f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"]


def test_the_worst_head_of_an_eval_is_named(drawn):
    titles, files = drawn
    of_cell = {row["cell"]: row["err_rel_l2"] for row in files.of("eval")}
    times, worst = max(((row["err_rel_l2"] / of_cell[cell["cell"]], row) for cell, row in files.heads), key=lambda at: at[0])
    assert titles["eval_heads"].startswith(f"Query head {worst['q_head']:.0f} of layer {worst['layer']:.0f} loses {times:.1f}×")


def three_digits(value):
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if "e" in digits or value >= 100 else digits
