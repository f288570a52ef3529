"""README's picture, headline and findings, and their runs' pages: drawn and said from what is committed."""

import re
from collections import Counter

import pytest
from claims import published, read_claims
from data import load_run
from figures.list import FIGURES
from report import specification, tables_of
from synthetic import HOME, rows_of

README = (HOME / "README.md").read_text()
PICTURES = re.findall(r"!\[[^]]*\]\((results/[^)]*)/figures/(\w+)\.png\)", README)


@pytest.mark.parametrize(("folder", "name"), PICTURES)
def test_a_picture_can_be_drawn_again(folder, name):
    """NoData names what is not committed."""
    assert (HOME / folder / "figures" / f"{name}.png").exists()
    (figure,) = [figure for figure in FIGURES if figure.name == name]
    assert specification(figure, tables_of([load_run(HOME / folder, "run")]), [])["data"]["values"]


def cells(folder, **settings):
    return [row for row in rows_of(HOME / folder / "cells.csv") if all(row[name] == str(value) for name, value in settings.items())]


def estimate(row, column, digits=2, sign=1):
    """A value and its interval as a sentence has them."""
    name = column.removesuffix("_p50")
    value, *ends = (f"{sign * float(row[key]):.{digits}f}" for key in (column, f"{name}_ci_low", f"{name}_ci_high"))
    return [value, "–".join(ends[::sign])]


def test_the_headline_is_what_its_picture_draws():
    """One quantity for both: the KL divergence of two caches of equal bytes; the run's page has the intervals."""
    ((folder, name),) = PICTURES
    assert name == "quality_kl"
    headline = re.search(r"\*\*(On SmolLM2.*?)\*\*", README, re.S)[1]
    keys, values = (cells(folder, experiment="quality", codec=f"split({codecs})")[0] for codecs in ("k=q8_0,v=q4_0", "k=q4_0,v=q8_0"))
    (less, low), (more, high) = (estimate(row, "kl_mean", digits) for row, digits in ((keys, 4), (values, 3)))
    assert re.findall(r"\d\.\d+", headline) == [less, more] and f"{float(more) / float(less):.0f} times" in headline
    assert keys["bytes_payload"] == values["bytes_payload"] and "at the same size" in headline
    assert all(f"({interval})" in page(folder) for interval in (low, high))


def page(folder):
    return (HOME / folder / "README.md").read_text()


def concatenation(folder):
    (row,) = cells(folder, variant="concat", seq_len=4096)
    ratio, interval = estimate(row, "append_total_ratio_p50", 0)
    return [row["seq_len"], ratio], [interval]


def four_bits(folder):
    (row,) = cells(folder, codec="q4_0", seq_len=4096, head_dim=128, kv_heads=32, threads=2)
    ratio, interval = estimate(row, "cold_ratio_p50")
    return [f"{1 / float(row['cold_ratio_p50']):.1f}"], [f"{ratio} of f16's time at 4,096 tokens ({100 * float(row['ratio_confidence']):.0f} % interval {interval})"]


def chunks(folder):
    rows = {row["arm"]: row for row in cells(folder, variant="contiguous", seq_len=4096) if row["chunk_tokens"] in ("", "128")}
    whole, chunked, tiled = (rows[arm] for arm in ("materialised", "materialised_chunked", "tiled"))
    mib = [f"{float(row['bytes_workspace_peak']) / 2**20:g}" for row in (chunked, whole)]
    ratio, interval = estimate(chunked, "ratio_p50")
    of_that = float(tiled["prefill_p50_us"]) / float(chunked["prefill_p50_us"])
    return ["4096", "128", *mib], [f"{ratio} ({interval})", f"{of_that:.2f} of the time of Eigen's chunks"]


def snapkv(folder):
    spec = "segmented(rows=16)/f16/snapkv(budget=64,window=16)"
    before, after = (cells(folder, variant=spec, seq_len=512, task="single", query=query) for query in ("before", "after"))
    right, full, asked, late = (sum(int(row[key]) for row in rows) for rows, key in (
        (before, "right"), (before, "full_right"), (before, "batch"), (after, "right")))  # fmt: skip
    assert right == full
    return ["64", "512", *map(str, (right, asked, late))], [f"answers {right} of {asked} questions"]


def sinks(folder):
    cached, absolute = (cells(folder, variant=f"contiguous/f16/ring(window=508,sinks=4{at})")[0] for at in (",positions=cache", ""))
    found = [estimate(cached, "loss_change", 3, -1), estimate(absolute, "loss_change")]
    return [value for value, _ in found], [interval for _, interval in found]


def cache_half_share_length(folder):
    rows = cells(folder, variant="contiguous/f16", batch=1, verdict="baseline")
    points = [(int(row["seq_len"]), float(row["cache_share"])) for row in rows]
    ((a, low), (b, high)) = next(pair for pair in zip(points, points[1:]) if pair[0][1] < 0.5 <= pair[1][1])
    return [f"{round(a + (0.5 - low) / (high - low) * (b - a), -3):.0f}"], []


def rounded(folder):
    left = {row["codec"].split("(")[0]: [] for row in cells(folder)}
    for row in cells(folder):
        left[row["codec"].split("(")[0]] += [int(row["rounded_answers"])] * (row["rounded_answers"] != "0")
    assert [codec for codec in left if left[codec]] == ["q8_0", "q4_0", "kivi"] and {*left["q8_0"], *left["q4_0"]} == {1}
    return ["1", "64", str(min(left["kivi"])), str(max(left["kivi"])), "64"], []


FINDINGS = [("growth", concatenation), ("kernels", four_bits), ("prefill", chunks), ("tasks", snapkv), ("real_stream", sinks)]


@pytest.mark.parametrize(("name", "sentence", "numbers"), [
    *((name, rf"{number}\. (.*\(results/epyc-2core/{name}\).*)\n", numbers) for number, (name, numbers) in enumerate(FINDINGS, 1)),
    ("serve", r"(Answers equal those of their requests alone.*?)\.\s", rounded),
    ("model", r"\*\*Answer\*\*: (.*)", cache_half_share_length),
])  # fmt: skip
def test_a_sentence_has_the_numbers_of_its_cells(name, sentence, numbers):
    folder = f"results/epyc-2core/{name}"
    text = re.search(sentence, README if "results" in sentence else page(folder))[1]
    text = re.sub(r"\]\([^)]*\)|`[^`]*`|(?<=\d),(?=\d{3})|\b(bf16|f16|q\d_0|llama-3.2-1b|SmolLM2|4-bit)\b", "", text)
    said, intervals = numbers(folder)
    assert re.findall(r"\d[\d.–]*(?<=\d)(?: %)?", text) == said, text
    assert [interval for interval in intervals if interval not in page(folder)] == []
    threads = {row["threads"] for row in cells(folder)}
    assert threads == {"2"} or name in ("kernels", "serve")  # kernels.toml has 1 and 2, and the finding is of 2


def test_the_published_figures_and_the_bugs_are_counted():
    bugs = [row["noticed"] for row in rows_of(HOME / "tests/mutants/matrix.csv") if row["file"].startswith("kernels/")]
    assert f"noticed {sum(map(bool, bugs))} of {len(bugs)} randomly drawn bugs" in README
    rows = published(read_claims(HOME / "results/epyc-2core/reproduce"))
    right, wrong = (sum(row["verdict"] == verdict for row in rows) for verdict in ("reproduced", "contradicted"))
    mistakes = Counter(row["note"] for row in rows if row["verdict"] == "contradicted" and row["kind"] == "document")
    said = rf"Of {len(rows)} \[published figures\]\S+ {right} are reproduced, {wrong} contradicted: {max(mistakes.values())} by one mistake\."
    assert re.search(said, README) and mistakes.total() == wrong
