"""The first screen at each sweep point, and the ranking behind it, from cells whose answers are known; and where conclusions come from: the program's,
committed beside cells.csv or asked for."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import answers
import polars as pl
import pytest
import whiskers
from answers import UNRELIABLE
from columns import BadResults
from data import load_run
from decision import points as points_of
from tables import CELL
from trust import causes
from prepare import with_front
from synthetic import COLUMNS as DECLARED, HOME, MANY, synthetic_run, with_stages
from planted import planted_cells

COLUMNS = ("variant", "time", "low", "high", "kib", "codec_error", "error", "kept")
DECODE = [
    ("contiguous", 100, 95, 105, 512, 0, 4e-7, 1024),
    ("paged", 103, 99, 108, 513, 0, 4e-7, 1024),
    ("concat", 400, 390, 410, 1024, 0, 4e-7, 1024),
    ("contiguous/f16", 60, 57, 63, 256, 3e-4, 3e-4, 1024),
    ("contiguous/q4_0", 62, 58, 66, 80, 0.1, 0.1, 1024),
    ("contiguous/token(bits=4)", 70, 69, 71, 90, 0.18, 0.18, 1024),
    ("contiguous/f16/ring(window=124,sinks=4)", 9, 8, 10, 32, 3e-4, 3.5, 128),
    ("contiguous/f16/tova(budget=128)", 12, 11, 13, 34, 3e-4, 1.5, 128),
]


def cells(rows=DECODE, **more) -> pl.DataFrame:
    made = []
    for row in rows:
        c = dict(zip(COLUMNS, row))
        first = c["variant"] == rows[0][0]
        made.append(with_stages({
            "run": "a", "experiment": "decode", "workload": "gaussian", "variant": c["variant"], "status": "ok",
            "layers": 1, "kv_heads": 2, "head_dim": 64, "batch": 1, "seq_len": 1024, "step_p50_us": c["time"],
            "step_ci_low_us": c["low"], "step_ci_high_us": c["high"], "held_bytes_per_token": c["kib"],
            "bytes_payload": 1024 * c["kib"], "err_rel_l2": c["error"], "err_codec_rel_l2": c["codec_error"],
            "err_retention_rel_l2": c["error"] if c["kept"] < 1024 else 0, "kept_tokens": c["kept"],
            "others_share": 0.02, "steal_share": 0.0, "verdict": "baseline" if first else "faster" if c["high"] < 100 else "slower" if c["low"] > 100 else "ambiguous",
            "versus": None if first else rows[0][0], "ratio_p50": None if first else c["time"] / 100,
            "ratio_ci_low": None if first else c["low"] / 100, "ratio_ci_high": None if first else c["high"] / 100, **more,
        }))  # fmt: skip
    return pl.DataFrame(made, infer_schema_length=None)


def points(made: pl.DataFrame):
    """Those of these cells, read from a folder about which the program draws its conclusions."""
    defaults = {"cell": "", "device": "cpu", "phase": "decode", "workload": "gaussian", "threads": 2, "layers": 1, "q_heads": 2, "bits_per_value": None}
    made = made.with_columns(pl.lit(value).alias(name) for name, value in defaults.items() if name not in made.columns)
    made = made.with_columns(cell=pl.format("{} {}", pl.int_range(pl.len()), "variant"))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "columns.json").write_text(json.dumps([*DECLARED.values()]))
        made.drop("run", strict=False).write_csv(Path(folder) / "cells.csv")
        run = load_run(Path(folder), "a")
    return points_of(run.cells.with_row_index(CELL), [run])


def names(lines):
    return [line.name for line in lines]


def column(point, words):
    at = next(at for at, heading in enumerate(point.headings) if heading.words.startswith(words)) - 1
    return {line.name: line.cells[at] for line in point.lines if line.cells}


RING = "contiguous/f16/ring(window={},sinks=4)"
UNTIMED = ("step_ci_low_us", "step_ci_high_us", "ratio_p50", "ratio_ci_low", "ratio_ci_high")
SENTENCES = {
    "the fastest with all that are tied": (lambda: cells(DECODE[:6]), re.escape(
        "At 1K tokens, `contiguous/f16` is fastest: it takes 0.60 times as long as `contiguous` (0.57–0.63); `contiguous/q4_0` is statistically tied; "
        "`concat` is slowest: it takes 4.00 times as long as `contiguous` (3.90–4.10).")),
    "no other is tied": (lambda: cells(DECODE[:4]), ".*no other is statistically tied.*"),
    # A ring of 2,048 over 1,024 tokens keeps them all, and "wins".
    "nothing to evict": (lambda: cells([*DECODE[:3], (RING.format(2048), 9, 8, 10, 32, 3e-4, 3e-4, 1024)], keeps_all=1),
        r".*\(its budget covers the whole sequence, so it kept all tokens\).*"),
    "one that evicts says so, and does not hide the fastest that keeps all": (lambda: cells([*DECODE[:-2], (RING.format(124), 9, 8, 10, 32, 3e-4, 0.15, 128)]),
        r".*`contiguous/f16/ring\(window=124,sinks=4\)` is fastest.*but keeps 128 of 1,024 tokens; `contiguous/f16` is fastest "
        r"of those that keep every token: it takes 0.60 times .*\(0.57–0.63\).*"),
    # The rings of DECODE err by 3.5 and 1.5.
    "an error above the limit is not the fastest": (lambda: cells(), ".*`contiguous/f16` is fastest of those with an error of at most 0.2.*"),
    "all above the limit": (lambda: cells(DECODE[-2:]), "At 1K tokens, no variant has an error of at most 0.2\\."),
    "no intervals": (lambda: cells(DECODE[:6]).drop(UNTIMED), "At 1K tokens, `contiguous/f16` is fastest: 60 µs\\."),
    "no intervals, and equal numbers": (lambda: cells(DECODE[:6]).drop(UNTIMED).with_columns(
        step_p50_us=pl.when(pl.col("variant") == "contiguous/q4_0").then(60.01).otherwise("step_p50_us")), ".*60 µs; `contiguous/q4_0` is equal, as printed\\."),
}  # fmt: skip


@pytest.mark.parametrize("case", SENTENCES)
def test_the_first_sentence_says_who_is_fastest(case):
    made, words = SENTENCES[case]
    said = points(made())[0].sentences[0]
    assert re.fullmatch(words, said), said
    assert ("its budget" in said) == (case == "nothing to evict")


def test_what_was_not_put_to_the_test_is_not_named_and_shows_no_error():
    untested = pl.col("variant") == "contiguous/f16"
    shares = {"encoded_share": 0.0, "context_encoded_share": 0.36, "dropped_share": 0.0, "context_dropped_share": 0.0}
    made = cells(DECODE[:6]).with_columns(
        *(pl.lit(value).alias(name) for name, value in shares.items()),
        verdict=pl.when(untested).then(pl.lit("untested")).otherwise("verdict"), stated_context=pl.lit(8192),
    )  # fmt: skip
    point = points(made)[0]
    assert "`contiguous/q4_0` is fastest" in point.sentences[0] and "contiguous/f16" not in " ".join(point.sentences)
    notes = {line.name: line.note for line in point.lines}
    assert notes.pop("contiguous/f16") == "not put to the test at 1,024 tokens: 0 % of its tokens were encoded, at 8,192 tokens 36 %"
    assert not any(notes.values()) and column(point, "error")["contiguous/f16"].value is None


def test_only_the_ratio_says_whether_two_are_tied():
    """Their own intervals overlap where drift moves both; one is faster all the same."""
    rows = [("contiguous", 100, 80, 120, 512, 0, 4e-7, 1024), ("contiguous/f16", 90, 75, 110, 256, 3e-4, 3e-4, 1024)]
    apart = cells(rows).with_columns(ratio_ci_low=pl.col("ratio_p50") - 0.02, ratio_ci_high=pl.col("ratio_p50") + 0.02)
    places = lambda made: {line.name: line.place for line in points(made)[0].lines}
    assert places(apart) == {"contiguous/f16": "best", "contiguous": ""}
    assert places(apart.with_columns(pl.col("ratio_ci_high") + 0.2)) == {"contiguous/f16": "best", "contiguous": "tied"}


def test_ratios_to_two_baselines_are_not_compared():
    """Two sweeps may share a sweep point, each with a baseline of its own."""
    rows = [("contiguous", 100, 95, 105, 512, 0, 4e-7, 1024), ("contiguous/q8_0", 60, 58, 62, 256, 3e-4, 3e-4, 1024),
            ("contiguous/f16", 50, 48, 52, 256, 3e-4, 3e-4, 1024), ("contiguous/q4_0", 40, 38, 42, 80, 0.1, 0.1, 1024)]  # fmt: skip
    versus = ["contiguous", None, "contiguous/f16"]
    ratios = zip(("ratio_p50", "ratio_ci_low", "ratio_ci_high"), ([0.6, None, 0.8], [0.58, None, 0.5], [0.62, None, 1.3]))
    columns = {"verdict": ["faster", "baseline", "ambiguous"], "versus": versus, **dict(ratios)}
    made = cells(rows).with_columns(pl.Series(name, [*cells(rows)[name][:1], *values]) for name, values in columns.items())
    point = points(made)[0]
    assert names(point.lines) == ["contiguous/q4_0", "contiguous/f16", "contiguous/q8_0", "contiguous"]
    assert "`contiguous/q4_0` is fastest" in point.sentences[0] and "no other is statistically tied" in point.sentences[0]
    assert "slowest" not in point.sentences[0]


def answered(*verdicts, questions=36):
    """The cells of DECODE with answers: (verdict, right of 36 questions)."""
    made = cells(DECODE[: len(verdicts)], experiment="task", step_p50_us=None, ratio_p50=None, accuracy_ci_low=0.1, accuracy_ci_high=1.0, pooled_full_right=31)
    right = pl.Series("pooled_right", [right for _, right in verdicts])
    return made.with_columns(right, accuracy=right / 36, verdict=pl.Series([verdict for verdict, _ in verdicts]),
                             pooled_questions=pl.lit(questions, pl.Int64))  # fmt: skip


def test_answers_are_called_good_where_a_loss_is_excluded_and_nowhere_else():
    judged = [("identical", 31), ("not_found_worse", 31), ("worse", 0), ("too_few_questions", 31), ("cannot_be_decided", 8)]
    (point,) = points(answered(*judged))
    assert re.fullmatch("At 1K tokens, 1 of 5 caches answer worse .*; `contiguous` is the smallest that loses at most 10 points: .*512 B per token.*"
                        "31 of 36 questions, the full cache 31; .*too few questions to judge 2 more.", point.sentences[0])  # fmt: skip
    assert column(point, "verdict")["contiguous/q4_0"].text == "cannot be decided" and not any(line.place for line in point.lines)
    (weak,) = points(answered(("too_few_questions", 31), ("cannot_be_decided", 31)))
    assert weak.sentences[0] == "At 1K tokens, there were too few questions to say whether any of 2 caches answers worse than the full f32 cache."
    (early,) = points(answered(("ambiguous", 31), ("worse", 0), questions=None))
    assert "an earlier version judged each cell alone" in early.sentences[0]


def test_an_oracle_is_in_the_table_and_in_no_answer():
    rows = [*DECODE[:3], ("contiguous/f16/topk(rows=32)", 9, 8, 10, 32, 3e-4, 3e-4, 1024)]
    (point,) = points(cells(rows))
    assert not any("topk" in said for said in point.sentences) and "`contiguous` is fastest" in point.sentences[0]
    assert point.lines[0].name.endswith("topk(rows=32)") and point.lines[0].note == "an oracle: it reads every row to choose"
    assert point.lines[0].place == point.lines[0].facts["front"] == ""
    told = cells(rows).rename({"held_bytes_per_token": "per_token", "err_rel_l2": "error"}).with_columns(panel=pl.lit(""))
    assert told.height == with_front(told)["front"].sum() + 3 and not with_front(told).filter("front")["variant"].str.contains("topk").any()


def test_more_is_better_of_a_rate():
    served = {"experiment": "serve", "status": "ok", "kv_heads": 2, "head_dim": 64, "batch": 8, "seq_len": 8192, "bytes_payload": 1000}
    rates = [("a", 2.0, 1.0, 3.0), ("b", 5.0, 4.0, 6.0), ("c", 4.0, 3.5, 4.5), ("d", None, None, None)]
    (point,) = points(pl.DataFrame([
        with_stages({"variant": name, **served, "goodput_per_s": rate, "goodput_per_s_ci_low": low, "goodput_per_s_ci_high": high}) for name, rate, low, high in rates
    ]))  # fmt: skip
    assert [(line.name, line.place) for line in point.lines] == [("b", "best"), ("c", "tied"), ("a", ""), ("d", "")]


def test_what_requests_got_stands_in_the_table_by_cache_and_batching():
    of_arms = {"static": 1.5, "64": 2.0}
    served = {"experiment": "serve", "workload": "model", "status": "ok", "layers": 1, "kv_heads": 2, "head_dim": 64, "batch": 8, "seq_len": 8192,
              "bytes_payload": None, "requests": 8, "refused": 0, "prompt_p50_tokens": 81, "output_p50_tokens": 16, "held_peak_bytes": 2**20}  # fmt: skip
    made = pl.DataFrame([
        with_stages({"variant": variant, "label": variant.replace("/", " "), "batching": arm, **served, "requests_per_s": rate, "served_tokens_per_s": 1234.5,
                     **{f"ttft_p{p}_s": p / 100 / rate for p in (50, 90, 99)}, **{f"tpot_p{p}_ms": p * rate for p in (50, 90, 99)}})
        for variant in ("paged/f16", "paged/q8_0") for arm, rate in of_arms.items()
    ], schema_overrides={"bytes_payload": pl.Float64})  # fmt: skip
    (point,) = points(made)
    assert point.place == "8 requests of 81 + 16 tokens (p50)"
    assert {line.name for line in point.lines} == {f"{label}, batching {arm}" for label in ("paged f16", "paged q8_0") for arm in of_arms}
    assert [heading.words for heading in point.headings[1:]] == ["requests/s", "good requests/s", "output tok/s", "TTFT, p99", "TPOT, p99", "held at the peak"]
    assert [(cell.text, cell.below) for cell in point.lines[0].cells[1:5]] == [
        ("not recorded", ""), ("1,230", ""), ("0.495 s", "0.25 s · 0.45 s"), ("198 ms", "100 ms · 180 ms")
    ]  # fmt: skip
    most, first, further = point.sentences
    assert most.startswith("With 8 requests of 81 + 16 tokens (p50), `paged f16, batching 64` serves the most: 2 requests per second;")
    assert first.startswith("`paged f16, batching 64` has the shortest time to the first token, p99: 0.495 s;")
    assert further.startswith("`paged f16, batching static` has the shortest time per token after the first, p99: 148 ms;")


def test_the_least_error_of_few_bits_is_said():
    made = cells().with_columns(bits_per_value=pl.Series([32.0, 32, 32, 16, 4.5, 5, 16, 16]))
    assert points(made)[0].sentences[1] == "`contiguous/q4_0` has the least relative error of those with at most 5 bits per value: 0.1."


def test_the_table_is_in_the_order_of_the_ranking_and_marks_the_best():
    (point,) = points(cells())
    assert names(point.lines)[:3] == ["contiguous/f16/ring(window=124,sinks=4)", "contiguous/f16/tova(budget=128)", "contiguous/f16"]
    assert {line.name: line.place for line in point.lines if line.place} == {"contiguous/f16": "best", "contiguous/q4_0": "tied"}
    assert point.lines[0].note == "keeps 128 of 1,024 tokens"


def test_columns_are_those_that_the_point_can_fill():
    (point,) = points(cells())
    assert [heading.words for heading in point.headings] == ["variant", "time / contiguous", "bytes per token", "bits", "error, rel. L2", "verdict"]
    times = column(point, "time")
    assert (times["concat"].text, times["concat"].below, times["concat"].value) == ("4.00 (3.90–4.10)", "400 µs ± 2.5%", 4)
    assert times["contiguous"].value == 1 and 'class="baseline"' in times["contiguous"].drawn
    assert 'class="slower"' in times["concat"].drawn and 'class="faster"' in times["contiguous/f16"].drawn
    untimed = points(cells().drop("step_p50_us", "ratio_p50", "ratio_ci_low", "ratio_ci_high"))[0]
    assert [heading.words for heading in untimed.headings][1:] == ["bytes per token", "bits", "error, rel. L2", "verdict"]
    assert "<circle" in column(untimed, "error")["concat"].drawn  # drawn where no time is
    alone = cells().with_columns(ratio_p50=pl.when(~pl.col("variant").str.starts_with("concat")).then("ratio_p50"))
    cell = column(points(alone)[0], "time")["concat"]
    assert cell.text == "–" and cell.why == "not compared: contiguous has no such time here"


def test_dots_lie_on_one_axis():
    (point,) = points(cells())
    middles = {name: float(cell.drawn.partition('cx="')[2].partition('"')[0]) for name, cell in column(point, "time").items()}
    ratios = {name: cell.value for name, cell in column(point, "time").items()}
    assert sorted(middles, key=middles.get) == sorted(ratios, key=ratios.get)
    ones = {cell.drawn.partition('class="one" d="M')[2].partition(" ")[0] for cell in column(point, "time").values()}
    assert len(ones) == 1 and float(ones.pop()) == middles["contiguous"]


@pytest.mark.parametrize(("rows", "mark", "signed"), [([(0.5, 0.4, 0.6), (450, 390, 520)], 1.0, False), ([(0.71, 0.6, 0.8), (1.1, 1, 1.2)], 1.0, False),
                                                      ([(-0.01, -0.02, 0), (4, 3, 5)], 0.0, True), ([(1e-7, 1e-7, 1e-7), (0.3, 0.3, 0.3)], None, False)])  # fmt: skip
def test_an_axis_has_ticks_that_do_not_meet(rows, mark, signed):
    axis = whiskers.axis_of(rows, mark, signed)
    ticks = axis.ticks()
    assert len(ticks) >= 2 and (mark is None or mark in ticks)
    width = lambda tick: 3.2 * len(whiskers.label(tick))
    assert all(axis.at(a) + width(a) < axis.at(b) - width(b) for a, b in zip(ticks, ticks[1:]))


def test_a_whisker_of_noise_squeezes_no_other():
    axis = whiskers.axis_of([(0.5, 0.4, 0.6), (2, 0.01, 900)], 1.0)
    assert axis.high < 10 and axis.low > 0.1


def test_the_pareto_front_by_medians_and_by_intervals():
    (point,) = points(cells())
    front = {line.name: line.facts["front"] for line in point.lines}
    assert front["concat"] == front["contiguous/token(bits=4)"] == ""
    assert {"contiguous", "contiguous/f16", "contiguous/q4_0"} < {name for name, place in front.items() if place == "front"}
    assert front["paged"] == "perhaps"  # slower by its median, not by its interval, and as large to three digits


def test_an_aa_test_is_no_variant_and_says_what_is_noise():
    aa = cells(DECODE[:1], verdict="aa_test", ratio_p50=0.85, ratio_ci_low=0.73, ratio_ci_high=0.98)
    (point,) = points(pl.concat([cells(DECODE[:2]), aa], how="diagonal_relaxed"))
    assert names(point.lines) == ["contiguous", "paged"]
    assert point.noise == ["A/A test failed: contiguous takes 0.85 times as long as itself (0.73–0.98); differences of 15% are noise here."]


def test_noise_stands_beside_its_verdict():
    noisy = cells(DECODE[2:3], noise="others took 40 %", others_share=0.4)
    (point,) = points(pl.concat([cells(DECODE[:2]), noisy], how="diagonal_relaxed"))
    assert {name: cell.noise for name, cell in column(point, "verdict").items()} == {"contiguous": "", "paged": "", "concat": "others took 40 %"}


WIDE, TAKEN = "the step's interval is wide: its upper end is {} times its lower end", "other processes took {} % of the processors"


def test_each_cause_of_noise_is_one_line_with_its_count_and_its_worst():
    noise = [WIDE.format("1.9"), WIDE.format("6.3"), f"{TAKEN.format(40)}; {WIDE.format('2.0')}"]
    rows = [{"status": "ok", "noise": said, "cell": f"cell {at}", "variant": f"variant {at}"} for at, said in enumerate(noise)]
    found = causes(rows, "noise")
    assert [(c.count, c.worst, c.cell, len(c.variants)) for c in found] == [(3, noise[1], "cell 1", 3), (1, TAKEN.format(40), "cell 2", 1)]


@pytest.mark.parametrize(("noise", "itself", "said"), [
    ("others took 40 %", 0.98, "the baseline `contiguous` is noisy (others took 40 %)"),
    (None, 1.34, "the baseline `contiguous` takes 3.05 times as long as itself (1.34–6.91)"),
    (None, 0.98, None),
])  # fmt: skip
def test_a_baseline_that_cannot_be_trusted_gives_no_verdict(noise, itself, said):
    """Whatever the intervals say: concat's is 3.90 to 4.10."""
    aa = cells(DECODE[:1], verdict="aa_test", versus="contiguous", ratio_p50=3.05, ratio_ci_low=itself, ratio_ci_high=6.91, noise=None)
    rows = pl.concat([cells(DECODE[:1], noise=noise), cells(DECODE[:6]).slice(1), aa], how="diagonal_relaxed")
    (point,) = points(rows)
    verdicts = {name: cell.text for name, cell in column(point, "verdict").items()}
    assert verdicts.pop("contiguous") == "baseline"
    assert (set(verdicts.values()) == {UNRELIABLE}) == (said is not None)
    assert point.sentences[0].startswith(f"At 1K tokens, no variant is called faster or slower: {said}." if said else "At 1K tokens, `contiguous/f16` is fastest")
    assert any(line.place for line in point.lines) == (said is None)


def test_the_verdict_is_on_the_times_that_are_shown():
    """In a growth run those of all appends, whatever the last step says."""
    totals = {f"append_total_ratio{end}": value for end, value in (("_p50", 2.0), ("_ci_low", 1.9), ("_ci_high", 2.1))}
    (point,) = points(cells(DECODE[:2], append_total_us=pl.Series([5.0])[0], **totals))
    assert column(point, "all appends / contiguous")["paged"].text == "2.00 (1.90–2.10)"
    assert column(point, "verdict")["paged"].text == "slower"  # its step is ambiguous


def test_what_could_not_run_is_in_the_table_and_grouped_by_its_reason():
    rows = pl.concat([cells(DECODE[:3], status="unsupported", reason="no such kernel"), cells(DECODE[3:4]),
                      cells(DECODE[4:5], status="out_of_memory", reason="needs 96 GiB")], how="diagonal_relaxed")  # fmt: skip
    rows = rows.with_columns(cell="variant")
    found = causes(rows.filter(pl.col("status") != "ok").rows(named=True), "reason")
    assert [(c.status, c.worst, c.count, c.variants) for c in found] == [
        ("unsupported", "no such kernel", 3, ["contiguous", "paged", "concat"]),
        ("out of memory", "needs 96 GiB", 1, ["contiguous/q4_0"]),
    ]
    told = {line.name: line.reason for line in points(rows)[0].lines if line.status != "ok"}
    assert told == {**dict.fromkeys(["contiguous", "paged", "concat"], "no such kernel"), "contiguous/q4_0": "needs 96 GiB"}


def test_the_first_panel_and_its_longest_length_come_first(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", MANY, lengths=(256, 1024), workloads=("sinks", "gaussian")), "run")
    places = [(point.panel, point.place) for point in points_of(run.cells.with_row_index(CELL), [run])]
    assert places == [(panel, place) for panel in ("sinks", "gaussian") for place in ("1K tokens", "256 tokens")]


def test_a_point_without_times_is_answered_by_errors(tmp_path):
    budgets = planted_cells("budget", "gaussian", ())
    made = pl.DataFrame(budgets, infer_schema_length=None).with_columns(run=pl.lit("a"))
    (point,) = points(made)
    assert " has the least relative error of the lossy caches" in point.sentences[0]
    assert {line.facts["front"] for line in point.lines} == {"", "front"}


FOLDERS = sorted(path.parent for path in HOME.glob("results/*/*/answers.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(HOME / "results")))
def test_what_is_committed_is_what_the_program_concludes(folder):
    """Another wording or rule: `./kvlab summary` of each folder writes its answers.json again."""
    program = os.environ.get("KVLAB_PROGRAM", str(HOME / ".build/release/harness/kvlab"))
    done = subprocess.run([program, "summary", folder, "--answers"], capture_output=True, check=True)
    assert done.stdout == (folder / "answers.json").read_bytes()


def test_a_folder_needs_a_program_only_where_its_answers_are_not_of_its_cells(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(FOLDERS[0], tmp_path / "run"))
    monkeypatch.setattr(answers, "PROGRAMS", [])
    monkeypatch.delenv("KVLAB_PROGRAM", raising=False)
    committed = load_run(folder, "run").answers
    assert committed["points"]
    with (folder / "cells.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(BadResults, match="has no answers.json of its cells.csv; `./kvlab summary .*` writes it"):
        load_run(folder, "run")
