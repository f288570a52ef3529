"""Every chart's title states what it shows, with the numbers of the CSV files, and lines cross where they do: read and computed here by other means
than plots/ and the program have."""

import math
import re
from itertools import combinations

import polars as pl
import pytest
from drawn import drawn, message, places, points
from figures.list import FIGURES
from figures.memory import least
from support import PLOTS, specifications
from synthetic import learn_names, synthetic_run


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_title_states_a_message(charts, figure):
    assert not message(charts[figure.name][0]).startswith(figure.title)


def test_a_title_about_memory_names_ties_together_and_the_whole_model():
    learn_names(["contiguous", "contiguous/f16", "doubling/f16", "concat/f16"])
    rows = pl.DataFrame([
        {"variant": name, "panel": "", "bytes_peak": size, "bytes_held": size, "peak_is_measured": True, "layers": 1, "model_layers": 32, "model_bytes": 32 * size}
        for name, size in (("contiguous", 2 << 20), ("contiguous/f16", 1 << 20), ("doubling/f16", (1 << 20) + 100), ("concat/f16", 1 << 20))
    ])  # fmt: skip
    said = "/f16 and 2 others have the lowest peak: 1 MiB in one layer of 32 (32 MiB in the whole model), 0.5 times that of contiguous,"
    assert least(rows, "contiguous", "bytes_peak").endswith(said)
    assert "others hold the least: 1 MiB" in least(rows, "contiguous", "bytes_held")
    tied = least(rows.filter(pl.col("variant") != "contiguous"), "doubling/f16", "bytes_held")
    assert tied == "No variant holds less than doubling/f16: 1 MiB in one layer of 32 (32 MiB in the whole model),"


def recalls(files):
    """The farthest distance at which a policy that drops tokens is within the intervals of the full cache."""
    low, high = (lambda row: row["loss"] - 1.96 * row["loss_se"]), (lambda row: row["loss"] + 1.96 * row["loss_se"])
    full = {row["distance"]: high(row) for row in files.of("recall") if row["verdict"] == "baseline"}
    return max(row["distance"] for row in files.of("recall") if row["kept_tokens"] < row["seq_len"] and low(row) <= full[row["distance"]])


def changes(files):
    shown = [row for row in files.of("quality") if row["kl_mean"] and row["loss_change"] is not None]
    changed = [row for row in shown if row["loss_change_ci_low"] > 0 or row["loss_change_ci_high"] < 0]
    worst = max(changed, key=lambda row: abs(row["loss_change"]))
    return rf"{len(changed)} of {len(shown)} variants .*by \{worst['loss_change']:+.2g} nats.*"


def reading(files):
    """The loss of the selection that reads least, and who is told apart."""
    rows = files.of("quality", "recall")
    ends = sorted(f"{row['loss_change']:.2g}" for row in rows if "/quest(top=0.1)" in row["variant"])
    part = [row for row in rows if "/quest(" in row["variant"] or row["kept_tokens"] < row["seq_len"]]
    alike = sum(row["verdict"] != "worse" for row in part)
    assert 0 < alike < len(part)
    losses = "".join(rf"(?=.*\b{re.escape(end)}(?: nats)? \([\d.]+ to )" for end in ends)
    return rf"{losses}contiguous f16 quest\(top=0.1\) reads least .*; {alike} of {len(part)} caches.*"


def front_of_budgets(files):
    at = list(places(files.of("budget"), "workload", "held_bytes_per_token", "err_rel_l2", "err_ci_low", "err_ci_high"))
    found = [{row["variant"] for row in at if row["place"] and row["workload"] == workload} for workload in {row["workload"] for row in at}]
    everywhere = set.intersection(*found)
    assert 4 < len(everywhere) < len({row["variant"] for row in at})
    return rf"(?:[^,]*, ){{3}}[^,]* and {len(everywhere) - 4} more are on the Pareto front at 1,024 tokens, .*"


def last_of_stream(files):
    rows = [row for row in files.side("positions.csv") if row["experiment"] == "stream"]
    last = max(row["position_last"] for row in rows)
    found = sorted(math.exp(row["loss"]) for row in rows if row["position_last"] == last)
    return f".*perplexity of {found[0]:.3g}.*(?:perplexity|one) of {found[-1]:.3g}.*"


def near_the_roofline(files):
    cells = [row for row in files.with_growth() if row["cold_ceiling_share"] is not None]
    hot = [row for row in cells if row["ceiling_gbps"] and row["ceiling_gbps"] >= 1.3 * row["cold_ceiling_gbps"]]
    shares = [row["cold_bound_share"] or row["cold_ceiling_share"] for row in cells]
    shares += [row["bound_share"] or row["ceiling_share"] for row in hot]
    return f"{sum(share >= 0.7 for share in shares)} of {len(shares)} cells reach 70 % .*the least, {100 * min(shares):.0f} %.*"


def workspaces(files):
    prompts = [row for row in files.of("prefill") if row["seq_len"] == max(r["seq_len"] for r in files.of("prefill"))]
    most, least = (end(row["bytes_workspace_peak"] for row in prompts) for end in (max, min))
    return f".* needs {most / 1024:.0f} KiB, {most / least:.1f} times as much as .*{least / 1024:.0f} KiB.*"


def over_the_payload(files):
    row = files.of("batch")[0]
    return f".*{sum(row[f'bytes_{kind}'] for kind in ('payload', 'metadata', 'slack')) / row['bytes_payload']:.2f} bytes.*"


def whole_model(files):
    first = [row for row in files.of("model") if row["verdict"] == "baseline" and row["batch"] == 1]
    longest = max(first, key=lambda row: row["seq_len"])
    rate = float(f"{longest['tokens_per_s']:.3g}")
    return rf".*takes 0.70 times as long as .*\(0.60–0.80\).*decodes {rate:,.0f} tokens per second at a context of {longest['seq_len']:,.0f} tokens"


def split_of_model(files):
    longest = max(row["seq_len"] for row in files.of("model"))
    shares = [row["cache_share"] for row in files.of("model") if row["seq_len"] == longest]
    return rf"\D*{100 * min(shares):.0f}%.* {100 * max(shares):.0f}%[^%]*"


def worst_head(files):
    worst = max(files.side("heads.csv"), key=lambda row: row["err_rel_l2"] / row["cell_err_rel_l2"])
    return f"Query head {worst['q_head']:.0f} of layer {worst['layer']:.0f} loses {worst['err_rel_l2'] / worst['cell_err_rel_l2']:.1f} times.*"


# A pattern each, of the whole title: an exact one, or one made from the files.
TITLES = {
    "growth": lambda files: r".* 256 tokens, a step of doubling\(read=copy\) f32 is slow in every repetition: .*",
    "growth_total": lambda files: r"Compared with contiguous f32, all 300 appends take [\d.]+ times \(.*\) as long with doubling\(read=copy\) f32, .* times \(.* with concat f32.*",
    "recall": lambda files: f".*: {recalls(files):,.0f} tokens.*",
    "recall_budget": lambda files: f".*longest distance .*{recalls(files):,.0f} tokens.*",
    "quality_loss": changes, "quality_read": reading, "budget": front_of_budgets, "stream": last_of_stream, "kernels": near_the_roofline,
    "prefill_workspace": workspaces, "batch_waste": over_the_payload, "model_rate": whole_model, "model_split": split_of_model, "eval_heads": worst_head,
    "task_depth": lambda files: re.escape(
        "2 of 4 caches answer worse than the full f32 cache; contiguous f32 is the smallest that loses at most 10 points: with 400 B per token it answers 45 of 48 questions, "
        "the full cache 45; there were too few questions to judge 1 more (single · question after compression); left out because the full f32 cache itself fails: single at 90 % of 512"),
    # In planted.BESIDE duo holds twice the baseline's bytes, and h2o has no budgets by layer or head.
    "loss_baseline": lambda files: re.escape(
        "Compared with contiguous f16 snapkv(budget=96), a uniform budget of the same bytes: on 1,024 tokens of text, contiguous f16 "
        "snapkv(budget=128) 1:contiguous/f16/snapkv(budget=64) loses 0.12 nats more (0.02 to 0.22), 2 of 3 are statistically tied; on recall 300 "
        "tokens back, contiguous f16 ring(window=64) 1:contiguous/f16/duo(retrieval=0) loses 0.2 nats less (0.1 to 0.3), contiguous f16 "
        "snapkv(budget=128) 1:contiguous/f16/snapkv(budget=64) loses 0.4 nats more (0.3 to 0.5), 1 of 3 is statistically tied"),
}  # fmt: skip


@pytest.mark.parametrize("name", TITLES)
def test_a_title_has_the_numbers_of_the_files(charts, name):
    spec, files = charts[name]
    assert re.fullmatch(TITLES[name](files), message(spec)), TITLES[name](files)


def test_charts_of_losses_over_the_full_cache_leave_out_those_beside_a_baseline(tmp_path):
    names = set(specifications(synthetic_run(tmp_path / "beside", lengths=(256,), also=["beside"]))[0])
    assert {"loss_baseline", "quality_kl"} <= names and not {"quality_loss", "quality_read", "recall_budget"} & names


def test_a_committed_run_is_drawn_as_its_summary_says_it():
    """kvlab summary results/epyc-2core/model: "from about 6420 tokens on (237–11800)"."""
    assert message(specifications(PLOTS.parent / "results/epyc-2core/model")[0]["break_even"]) == (
        "batch 1: f16 ring 4096 sinks 4 is faster than kivi 2-bit residual 128 from about "
        "6,420 tokens on (237–11,800)"
    )


T_OF_10_DEGREES = 2.228139  # two lines of seven lengths each


def line_of(own):
    """Intercept, slope, the inverse of the normal equations, and the squared errors: each is a share of the line."""
    scales = [time for _, time in own]
    for _ in range(3):
        a, b, d = (sum(tokens**power / scale**2 for (tokens, _), scale in zip(own, scales)) for power in (0, 1, 2))
        e, f = (sum(tokens**power * time / scale**2 for (tokens, time), scale in zip(own, scales)) for power in (0, 1))
        det = a * d - b * b
        intercept, slope = (d * e - b * f) / det, (a * f - b * e) / det
        squares = sum(((time - intercept - slope * tokens) / scale) ** 2 for (tokens, time), scale in zip(own, scales))
        scales = [intercept + slope * tokens for tokens, _ in own]
    return intercept, slope, (d / det, -b / det, a / det), squares


def ends_of(one, other, at):
    """The farthest lengths on both sides at which the lines may be equal, found by halving."""
    variance = (one[3] + other[3]) / 10

    def may_be_equal(x):
        far = one[0] - other[0] + (one[1] - other[1]) * x
        spread = sum(line[2][0] + 2 * x * line[2][1] + x * x * line[2][2] for line in (one, other))
        return far * far <= T_OF_10_DEGREES**2 * variance * spread

    for beyond in (0.0, 100 * at):
        inside = at
        for _ in range(100):
            middle = (inside + beyond) / 2
            inside, beyond = (middle, beyond) if may_be_equal(middle) else (inside, middle)
        yield inside


def test_lines_cross_where_they_do(charts):
    spec, files = charts["break_even"]
    own = {}
    for row in files.of("decode"):
        own.setdefault(row["variant"], []).append((row["seq_len"], row["step_p50_us"]))
    assert drawn(spec, "point", "color", "x", "y") == points((name, *at) for name, each in own.items() for at in each)
    lines = {name: line_of(each) for name, each in own.items()}
    for name, tokens, time in drawn(spec, "line", "color", "x", "y"):
        assert time == pytest.approx(lines[name][0] + lines[name][1] * tokens, rel=1e-6)
    marked = {(row["variant"], row["before"]): row for row in spec["data"]["values"] if row["crosses"]}
    assert len(marked) == len(lines) == 3
    for one, other in combinations(lines, 2):
        after, before = sorted((one, other), key=lambda name: lines[name][1])
        row = marked[after, before]
        at = (lines[after][0] - lines[before][0]) / (lines[before][1] - lines[after][1])
        low, high = ends_of(lines[one], lines[other], at)
        assert (row["tokens"], row["low"], row["high"]) == pytest.approx((at, low, high), rel=1e-5)
        assert 0.8 < low / at < 1 < high / at < 1.25, "noise of 3 %"
        said = [round(float(f"{value:.3g}")) for value in (at, low, high)]
        assert row["said"] == "{:,} tokens ({:,}–{:,})".format(*said)
    drawn_at = points((row["low"], row["high"], row["us"]) for row in marked.values())
    assert drawn(spec, "rule", "x", "x2", "y") == drawn_at
