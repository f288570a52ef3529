"""Each chart draws the numbers of the CSV files, which are read here by other means than plots/ has.

Every layer of every specification in report.html is turned back into points: the values of its rows in the fields that
its channels name. They are compared with points made from the CSV files, which are read with the csv module alone.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from statistics import median

import altair as alt
import polars as pl
import pytest
from checks_of_lines import check_break_even  # noqa: F401
from checks_of_models import check_kl_position, check_loss_baseline, check_quality_kl, check_quality_loss  # noqa: F401
from checks_of_models import check_quality_read, check_recall, check_recall_budget, check_stream  # noqa: F401
from checks_of_models import check_sensitivity_layers, check_sensitivity_sum, check_task_bytes, check_task_depth  # noqa: F401
from checks_of_peers import check_peers  # noqa: F401
from checks_of_replays import check_hit_rate, check_replay_concurrency, check_replay_memory, check_replay_requests  # noqa: F401
from checks_of_replays import check_acceptance, check_serve_held, check_serve_tpot, check_serve_ttft  # noqa: F401
from checks_of_tiers import UNITS, check_tier_bytes, check_tier_hidden, check_tier_time  # noqa: F401
from drawn import BASELINE, Files, drawn, front, heat_cells, heat_table, held, place, places, points, title
from figures.batch import cost_of_padding
from figures.list import FIGURES
from support import reported
from synthetic import synthetic_run
from synthetic_shape import in_words

FLOOR = 1e-9  # smaller errors are drawn there, as the charts say


def check_memory(spec, files):
    want = points((row["variant"], row["seq_len"], row["peak_bytes"]) for row in files.common() if row["bytes_payload"])
    assert title(spec, "y") == "peak memory, 2 layers of 32"
    for mark in ("line", "point"):
        assert set(drawn(spec, mark, "color", "x", "y")) == set(want)  # once where workloads and experiments agree


def check_bytes(spec, files):
    kinds = {"payload": "bytes_payload", "metadata": "bytes_metadata", "workspace peak": "bytes_workspace_peak",
             "slack": "bytes_slack"}  # fmt: skip
    unit = UNITS[re.search(r"\[(\w+)\]", title(spec, "x"))[1]]
    want = points((row["variant"], kind, row[column] / row["seq_len"] / row["batch"] / unit)
                  for row in files.common() for kind, column in kinds.items() if row[column])  # fmt: skip
    assert set(drawn(spec, "bar", "y", "color", "x")) == set(want)


def check_latency(spec, files):
    cells = files.common()
    assert title(spec, "y") == "step, p50 [µs]"
    for mark in ("line", "point"):
        want = points((row["variant"], row["seq_len"], row["step_p50_us"]) for row in cells)
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((row["variant"], row["seq_len"], row["step_ci_low_us"], row["step_ci_high_us"]) for row in cells
                  if row["step_p50_us"])  # fmt: skip
    assert drawn(spec, "rule", "color", "x", "y", "y2") == want
    assert drawn(spec, "area", "fill", "x", "y", "y2") == want


def check_ratio(spec, files):
    cells = [row for row in files.common() if row["ratio_p50"]]
    assert title(spec, "x") == f"time / {in_words(BASELINE)}"
    want = points((row["variant"], row["ratio_p50"], row["verdict"]) for row in cells)
    assert drawn(spec, "point", "y", "x", "color") == want
    want = points((row["variant"], row["ratio_ci_low"], row["ratio_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "y", "x", "x2") == want
    assert len(drawn(spec, "text", "y", "text")) == len(points((row["variant"], row["seq_len"]) for row in cells))


def swept(rows):
    """(what is left of the name without the block, the block, the row) of each variant that has one."""
    return [(re.sub(r"block=\d+,?", "", row["variant"]).replace("()", ""), int(found[1]), row) for row in rows
            if (found := re.search(r"block=(\d+)", row["variant"]))]  # fmt: skip


def check_parameter_time(spec, files):
    assert title(spec, "x") == "block of paged"
    for mark in ("line", "point"):
        want = points((line, block, row["step_p50_us"]) for line, block, row in swept(files.common()))
        assert drawn(spec, mark, "color", "x", "y") == want
    ends = points((line, block, row["step_ci_low_us"], row["step_ci_high_us"]) for line, block, row in swept(files.common()))
    assert drawn(spec, "rule", "color", "x", "y", "y2") == ends
    level = {(row["step_p50_us"],) for row in files.common() if row["variant"] == BASELINE}
    assert set(points(level)) <= set(drawn(spec, "rule", "y"))


def check_parameter_memory(spec, files):
    for mark in ("line", "point"):
        want = points((line, block, row["peak_bytes"]) for line, block, row in swept(files.common()))
        assert drawn(spec, mark, "color", "x", "y") == want
    level = {(row["peak_bytes"],) for row in files.common() if row["variant"] == BASELINE}
    assert set(drawn(spec, "rule", "y")) == level


def totals(row):
    return row["append_total_us"], row["append_total_ci_low_us"], row["append_total_ci_high_us"]


def check_parameter_growth(spec, files):
    lines = [(line, block, totals(row)) for line, block, row in swept(files.of("growth"))]
    assert len(lines) == 12
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == points((*line, total) for *line, (total, *_) in lines)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == points((*line, *ends) for *line, (_, *ends) in lines)
    level = {(row["append_total_us"],) for row in files.of("growth") if row["variant"] == BASELINE}
    assert set(points(level)) <= set(drawn(spec, "rule", "y"))


def steps_of(files):
    """(variant, token): its times, one a repetition; beside each the median of the nine steps around it."""
    runs, found = defaultdict(dict), defaultdict(list)
    longest = max(cell["seq_len"] for cell, _ in files.growth)
    for cell, row in ((cell, row) for cell, row in files.growth if cell["seq_len"] == longest):
        runs[cell["variant"], row["repetition"]][row["token"]] = row["step_us"]
    for (variant, _), steps in runs.items():
        for token, time in steps.items():
            around = [steps[at] for at in range(int(token) - 4, int(token) + 5) if at in steps]
            found[variant, token].append((time, median(around)))
    return found


def reallocating(files):
    return {at: pairs for at, pairs in steps_of(files).items()
            if at[1] > 4 and all(time >= 2 * around for time, around in pairs)}  # fmt: skip


def check_growth(spec, files):
    """Few enough steps that none is left out."""
    times = {at: [time for time, _ in pairs] for at, pairs in steps_of(files).items()}
    assert drawn(spec, "line", "color", "x", "y") == points((*at, median(all)) for at, all in times.items())
    assert drawn(spec, "area", "fill", "x", "y", "y2") == points((*at, min(all), max(all)) for at, all in times.items())
    far = reallocating(files)
    assert ("doubling/f32/full", 256) in far
    assert drawn(spec, "point", "color", "x", "y") == points((*at, median(times[at])) for at in far)


def check_reallocations(spec, files):
    far = reallocating(files)
    want = {at: [median(column) for column in zip(*pairs)] for at, pairs in far.items()}
    assert drawn(spec, "point", "color", "x", "y") == points((*at, time) for at, (time, _) in want.items())
    assert drawn(spec, "rule", "color", "x", "y", "y2") == points((*at, low, time) for at, (time, low) in want.items())


def check_growth_total(spec, files):
    """The steps of growth.csv, summed here, give the same totals."""
    spent = defaultdict(float)
    for cell, row in files.growth:
        spent[cell["variant"], cell["seq_len"], row["repetition"]] += row["append_us"] + row["view_us"]
    sums = defaultdict(list)
    for (variant, length, _), us in spent.items():
        sums[variant, length].append(us)
    want = points((*line, median(times)) for line, times in sums.items())
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want
    assert drawn(spec, "rule", "color", "x", "y", "y2") == points((*line, min(times), max(times)) for line, times in sums.items())


def check_pareto(spec, files):
    cells = [row for row in files.common() if row["step_p50_us"] and row["err_rel_l2"]]
    at = [((row["experiment"], row["seq_len"]), held(row) / row["batch"] / row["seq_len"] / 1024,
           max(row["err_rel_l2"], FLOOR), row["variant"], row["step_p50_us"]) for row in cells]  # fmt: skip
    assert title(spec, "y") == "relative L2 error of the output"
    want = points((variant, *point, time) for _, *point, variant, time in at)
    assert drawn(spec, "point", "stroke", "x", "y", "fill") == want
    assert drawn(spec, "point", "shape", "x", "y", "fill") == want
    best = set(points(row[1:3] for row in front(at)))
    assert set(drawn(spec, "line", "x", "y")) == best


def check_bandwidth(spec, files):
    cells = [row for row in files.common()]
    temperatures = [("hot cache", "ceiling_share"), ("cold cache", "cold_ceiling_share")]
    want = points((row["variant"], row["seq_len"], row[share], name) for row in cells for name, share in temperatures)
    rows = [row for row in spec["data"]["values"] if not row["reference"]]
    shown = points((row["variant"], row["seq_len"], row["share_text"], row["temperature"]) for row in rows)
    assert shown == points((*at, f"{share:.1%}", name) for *at, share, name in want.elements())
    every = points((variant, length, min(share, 1)) for variant, length, share, _ in want.elements())
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == every
    assert title(spec, "y") == "% of measured read bandwidth"


def check_kernels(spec, files):
    want = []
    for row, cold in heat_cells(files):
        prefix = "cold_" if cold else ""
        share = row[f"{prefix}bound_share"]
        share = row[f"{prefix}ceiling_share"] if share is None else share
        want.append((*place(row, cold), f"{round(100 * share)}"))
    assert heat_table(spec) == points(want)
    labels = points((variant, column, label) for variant, column, _, label in want)
    assert labels <= drawn(spec, "text", "y", "x", "text")


def check_kernels_ratio(spec, files):
    want = []
    for row, cold in heat_cells(files):
        ratio = row["cold_ratio_p50" if cold else "ratio_p50"]
        if ratio is not None:
            want.append((*place(row, cold), f"{ratio:.2f}"))
    assert heat_table(spec) == points(want)
    labels = points((variant, column, label) for variant, column, _, label in want)
    assert labels <= drawn(spec, "text", "y", "x", "text")


def check_budget(spec, files):
    want = points((row["series"], row["held_bytes_per_token"] / 1024, max(row["err_rel_l2"], FLOOR))
                  for row in files.of("budget"))  # fmt: skip
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want
    at = [(row["workload"], row["held_bytes_per_token"] / 1024, row["err_rel_l2"], row["err_ci_low"] or row["err_rel_l2"],
           row["err_ci_high"] or row["err_rel_l2"], row["series"]) for row in files.of("budget")]  # fmt: skip
    bars = points((row[5], row[1], *row[3:5]) for row in at if row[3] != row[4])
    assert drawn(spec, "rule", "color", "x", "y", "y2") == bars
    found = places(at)
    assert {place for place, _ in found} == {"on the front", "ambiguous"}
    assert drawn(spec, "circle", "fill", "x", "y") == points((place, *row[1:3]) for place, row in found)
    assert set(points(row[1:3] for place, row in found if place == "on the front")) <= set(drawn(spec, "line", "x", "y"))


def check_eval_error(spec, files):
    cells = files.of("eval")
    at = [("", row["held_bytes_per_token"] / 1024, row["err_rel_l2"], row["variant"]) for row in cells]
    assert drawn(spec, "point", "shape", "x", "y") == points((variant, *point) for _, *point, variant in at)
    errors = {row["variant"]: [head["err_rel_l2"] for cell, head in files.heads if cell is row] for row in cells}
    ranges = points((variant, per_token, min(errors[variant]), max(errors[variant])) for _, per_token, _, variant in at)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == ranges
    best = front(at)
    assert len(best) == 2 and drawn(spec, "line", "x", "y") == points(row[1:3] for row in best)


def check_eval_heads(spec, files):
    same = defaultdict(list)
    for cell in files.of("eval"):
        same[cell["err_rel_l2"]].append(cell["variant"])  # in the synthetic run, what has one error has all
    drawn_ones = {min(variants): f"{in_words(min(variants))}{f' +{len(variants) - 1}' if variants[1:] else ''}" for variants in same.values()}
    want = points((f"{drawn_ones[cell['variant']]}: {cell['err_rel_l2']:.2g}", head["layer"], head["q_head"],
                   head["err_rel_l2"] / cell["err_rel_l2"]) for cell, head in files.heads if cell["variant"] in drawn_ones)  # fmt: skip
    assert sorted(len(variants) for variants in same.values()) == [1, 1, 4]
    assert points((row["panel"], row["layer"], row["q_head"], row["times"]) for row in spec["data"]["values"]) == want
    assert drawn(spec, "rect", "y", "x", "color") == points(row[1:] for row in want.elements())


def check_checkpoint(spec, files):
    columns = {"save": "save_p50_us", "load": "load_p50_us", "snapshot": "freeze_p50_us", "restore": "unfreeze_p50_us",
               "fork": "fork_p50_us"}  # fmt: skip
    want = [(row["variant"], operation, row["seq_len"], row[column]) for row in files.of("checkpoint")
            for operation, column in columns.items()]  # fmt: skip
    values = spec["data"]["values"]
    shown = ((row["variant"], row["panel"], row["seq_len"], row["time"]) for row in values)
    assert points(shown) == points(want)
    assert drawn(spec, "point", "y", "color", "x") == points((variant, *at) for variant, _, *at in want)
    assert drawn(spec, "line", "y", "detail", "x") == points((point[0], point[0], point[3]) for point in want)


def arm(row):
    if row["chunk_tokens"] is None:
        return row["arm"]
    return f"{row['arm'].replace('_', ' ')} by {row['chunk_tokens']:.0f} tokens"


def check_prefill_workspace(spec, files):
    want = points((arm(row), row["seq_len"], row["bytes_workspace_peak"]) for row in files.of("prefill"))
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want


def check_prefill_time(spec, files):
    cells = files.of("prefill")
    assert title(spec, "y") == "prompt, p50 [µs]"
    want = points((arm(row), row["seq_len"], row["prefill_p50_us"]) for row in cells)
    for mark in ("line", "point"):
        assert drawn(spec, mark, "color", "x", "y") == want
    want = points((row["seq_len"], row["prefill_ci_low_us"], row["prefill_ci_high_us"]) for row in cells)
    assert drawn(spec, "rule", "x", "y", "y2") == want


def check_batch_waste(spec, files):
    kinds = {"payload": "bytes_payload", "metadata": "bytes_metadata", "slack": "bytes_slack"}
    want = [(f"lengths {row['lengths']}, batch {row['batch']:.0f}", row["variant"], kind,
             row[column] / row["bytes_payload"])
            for row in files.of("batch") for kind, column in kinds.items() if row[column]]  # fmt: skip
    values = spec["data"]["values"]
    shown = ((row["panel"], row["variant"], row["kind"], row["times_payload"]) for row in values)
    assert points(shown) == points(want)
    assert drawn(spec, "bar", "y", "color", "x") == points(point[1:] for point in want)


def test_a_batchs_title_is_the_largest_cost_of_padding():
    cells = [
        {"variant": variant, "lengths": lengths, "ratio_p50": ratio, "ratio_ci_low": low, "ratio_ci_high": high, "masked_share": share}
        for variant, lengths, ratio, low, high, share in (
            ("contiguous", "16,500", 9.0, 8.0, 10.0, None), ("unpadded", "16,500", 12.0, 11.0, 13.0, None),
            ("padded", "16,500", 1.84, 1.8, 1.9, 0.484), ("padded", "zipf(16,64)", 2.62, 2.5, 2.75, 0.613),
        )
    ]  # fmt: skip
    assert cost_of_padding(pl.DataFrame(cells)) == (
        "Padded to the longest and masked, a step takes 2.6× (2.5–2.8) the time of the same attention unpadded: "
        "61% of its rows are padding (lengths zipf(16,64))"
    )
    assert cost_of_padding(pl.DataFrame(cells[:2])) is None
    assert cost_of_padding(pl.DataFrame({"variant": ["contiguous"]})) is None, "a folder of an earlier version"


def check_model_rate(spec, files):
    cells = files.of("model")
    assert title(spec, "y") == "tokens a second"
    rates = points((row["variant"], row["seq_len"], row["tokens_per_s"]) for row in cells)
    assert drawn(spec, "point", "color", "x", "y") == rates
    rooflines = points((row["variant"], row["seq_len"], row["batch"] / row["step_bound_us"] * 1e6) for row in cells)
    assert drawn(spec, "line", "color", "x", "y") == rates + rooflines
    ends = points((row["variant"], row["seq_len"], row["tokens_per_s_ci_low"], row["tokens_per_s_ci_high"]) for row in cells)
    assert drawn(spec, "rule", "color", "x", "y", "y2") == ends


def check_model_split(spec, files):
    parts = {"projections": ["projections_p50_us"], "the rest": ["rest_p50_us"], "attention": ["attend_p50_us"],
             "append and view": ["append_p50_us", "view_p50_us"], "linear states": ["state_p50_us"]}  # fmt: skip
    drawn_parts = [(row, part, [row[column] for column in columns]) for row in files.of("model") for part, columns in parts.items()]
    drawn_parts = [(row, part, took) for row, part, took in drawn_parts if None not in took]  # only hybrids have states
    assert {part for _, part, _ in drawn_parts} == set(parts)
    want = points((row["variant"], part, sum(took) / 1000) for row, part, took in drawn_parts)
    assert drawn(spec, "bar", "y", "color", "x") == want
    rooflines = points((row["variant"], row["step_bound_us"] / 1000) for row, _, _ in drawn_parts)
    assert drawn(spec, "tick", "y", "x") == rooflines


@pytest.fixture(scope="module")
def page(special_reports, tmp_path_factory):
    """The specifications as the report has them, and the files that it was drawn from."""
    common = synthetic_run(tmp_path_factory.mktemp("drawn") / "run", lengths=(256, 512, 1024), growth_to=300, later=True, one_thread=True)
    reported(common)
    found = {}
    for run in (*special_reports, common):  # a figure that several draw is checked in the last
        specs = re.search(r'id="specs">(.*?)</script>', (run / "report.html").read_text(), re.DOTALL)
        found |= {name: (spec, Files(run)) for name, spec in json.loads(specs[1]).items()}
    return found


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_a_chart_draws_what_the_files_say(page, name):
    check = globals().get(f"check_{name}")
    assert check, f"write check_{name} above: what the chart has to draw, read from the CSV files"
    spec, files = page[name]
    alt.Root.validate(spec)  # report.py saves the time of looking
    check(spec, files)
