"""The report's answers at each sweep point, from cells whose answers are known."""

from __future__ import annotations

import polars as pl
from answers import not_run, points
from data import load_run
from synthetic import MANY, synthetic_run
from synthetic_models import budget_cells
from synthetic_shape import learn_names, with_stages

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
            "step_ci_low_us": c["low"], "step_ci_high_us": c["high"], "bytes_held": 1024 * c["kib"],
            "bytes_payload": 1024 * c["kib"], "err_rel_l2": c["error"], "err_codec_rel_l2": c["codec_error"],
            "err_retention_rel_l2": c["error"] if c["kept"] < 1024 else 0, "kept_tokens": c["kept"],
            "others_share": 0.02, "steal_share": 0.0, "verdict": "baseline" if first else "faster" if c["high"] < 100 else "slower" if c["low"] > 100 else "ambiguous",
            "versus": None if first else rows[0][0], "ratio_p50": None if first else c["time"] / 100,
            "ratio_ci_low": None if first else c["low"] / 100, "ratio_ci_high": None if first else c["high"] / 100, **more,
        }))  # fmt: skip
    learn_names([row[0] for row in rows])
    return pl.DataFrame(made, infer_schema_length=None)


def answer(point, question):
    return next(a for a in point.answers if a.question == question)


def names(values):
    return [value.name for value in values]


def test_the_fastest_is_named_with_all_that_cannot_be_told_from_it():
    (point,) = points(cells(DECODE[:6]))
    fastest = answer(point, "Fastest step")
    assert (fastest.best.name, fastest.best.text, fastest.best.interval) == ("contiguous/f16", "60 µs", "57 µs – 63 µs")
    assert names(fastest.same) == ["contiguous/q4_0"]
    assert "0.6 of the time of contiguous (0.57 – 0.63)" in fastest.note
    assert fastest.told == "contiguous/f16, 60 µs (57 µs – 63 µs) (statistically tied with it: contiguous/q4_0)"
    assert "Fastest step that keeps every token" not in [a.question for a in point.answers]  # it is one
    assert fastest.columns == ["step_p50_us", "step_ci_low_us", "step_ci_high_us", "ratio_p50", "ratio_ci_low", "ratio_ci_high"]


def test_a_ratio_is_of_the_time_that_it_stands_beside():
    cold = {"cold_attend_p50_us": "step_p50_us", "cold_ci_low_us": "step_ci_low_us", "cold_ci_high_us": "step_ci_high_us"}
    rows = cells(DECODE[:6]).with_columns(**{name: 10 * pl.col(column) for name, column in cold.items()})
    assert answer(points(rows)[0], "Fastest cold attention").note == ""
    ratios = {"cold_ratio_p50": 0.9, "cold_ratio_ci_low": 0.8, "cold_ratio_ci_high": 1.1}
    (point,) = points(rows.with_columns(**{name: pl.lit(ratio) for name, ratio in ratios.items()}))
    assert answer(point, "Fastest cold attention").note == "0.9 of the time of contiguous (0.8 – 1.1): ambiguous"
    assert answer(point, "Fastest step").note.startswith("0.6 of the time of contiguous")


def test_a_quiet_point_says_that_none_is_noisy():
    assert points(cells())[0].quiet.lines[-1] == "No cell is marked as noisy."
    assert points(cells().drop("others_share", "steal_share"))[0].quiet.lines == []  # an older folder did not look


def test_a_policy_that_had_nothing_to_evict_is_told():
    """A ring of 1024 over 300 tokens keeps them all, and "wins"."""
    (point,) = points(cells([*DECODE[:3], ("contiguous/f16/ring(window=2048,sinks=4)", 9, 8, 10, 32, 3e-4, 3e-4, 1024)], keeps_all=1.0))
    assert "its budget is not below the sequence, so it kept all tokens" in answer(point, "Fastest step").note
    (point,) = points(cells(DECODE[:6]))
    assert "budget" not in answer(point, "Fastest step").note


def test_one_that_evicts_says_so_and_does_not_hide_the_fastest_that_keeps_all():
    mild = [*DECODE[:-2], ("contiguous/f16/ring(window=124,sinks=4)", 9, 8, 10, 32, 3e-4, 0.15, 128)]
    (point,) = points(cells(mild))
    fastest = answer(point, "Fastest step")
    assert fastest.best.name == "contiguous/f16/ring(window=124,sinks=4)" and fastest.same == []
    assert "keeps 128 of 1024 tokens, error 0.15" in fastest.note
    assert answer(point, "Fastest step that keeps every token").best.name == "contiguous/f16"


def test_an_error_above_the_limit_is_neither_the_fastest_nor_the_smallest():
    """The rings of DECODE are so, with errors of 3.5 and 1.5."""
    (point,) = points(cells())
    assert answer(point, "Fastest step with an error of at most 0.2").best.name == "contiguous/f16"
    assert answer(point, "Smallest with an error of at most 0.2").best.name == "contiguous/q4_0"
    (alone,) = points(cells(DECODE[-2:]))
    assert not [a.question for a in alone.answers if a.question.startswith(("Fastest", "Smallest"))]


def test_only_the_ratio_says_whether_two_are_tied():
    """Their own intervals overlap where drift moves both; one is faster all the same."""
    rows = [("contiguous", 100, 80, 120, 512, 0, 4e-7, 1024), ("contiguous/f16", 90, 75, 110, 256, 3e-4, 3e-4, 1024)]
    told = cells(rows).with_columns(ratio_ci_low=pl.col("ratio_p50") - 0.02, ratio_ci_high=pl.col("ratio_p50") + 0.02,
                                    verdict=pl.when(pl.col("versus").is_null()).then(pl.lit("baseline")).otherwise(pl.lit("faster")))  # fmt: skip
    (point,) = points(told)
    fastest = answer(point, "Fastest step")
    assert fastest.best.name == "contiguous/f16" and fastest.same == [] and "faster" in fastest.note
    (point,) = points(told.with_columns(pl.col("ratio_ci_high") + 0.2, verdict=pl.when(pl.col("versus").is_null()).then("verdict").otherwise(pl.lit("ambiguous"))))
    assert names(answer(point, "Fastest step").same) == ["contiguous"]


def test_without_intervals_nothing_but_equal_numbers_is_the_same():
    (point,) = points(cells(DECODE[:6]).drop("step_ci_low_us", "step_ci_high_us", "ratio_p50", "ratio_ci_low", "ratio_ci_high"))
    fastest = answer(point, "Fastest step")
    assert fastest.same == [] and fastest.best.interval == ""
    assert "no intervals were measured" in fastest.note


def test_lossless_is_what_was_measured_so():
    (point,) = points(cells())
    lossless = answer(point, "Lossless")
    assert [lossless.best.name, *names(lossless.same)] == ["contiguous", "paged", "concat"]
    assert answer(point, "Most exact of the others").best.name == "contiguous/f16"
    assert answer(point, "Smallest with an error of at most 0.2").best.name == "contiguous/q4_0"


def test_the_pareto_front_by_medians_and_by_intervals():
    (point,) = points(cells())
    front = point.front
    assert "concat" not in front.front + front.perhaps
    assert {"contiguous", "contiguous/f16", "contiguous/q4_0"} < set(front.front)
    assert front.perhaps == ["paged"]  # slower by its median, not by its interval, and as large to three digits
    assert "contiguous/token(bits=4)" not in front.front + front.perhaps
    assert (front.of, front.kinds) == (8, ["step time", "bytes", "error"])


def test_a_budget_names_the_best_of_what_fits():
    (point,) = points(cells())

    def within(kib):
        row = [step for step in point.within if step.size <= 1024 * kib][-1]
        return {question: found and found.best.name for question, found in row.answers}

    assert point.within[0].size == 32 * 1024
    ring = "contiguous/f16/ring(window=124,sinks=4)"
    assert within(33) == {"Fastest": None, "Fastest that keeps every token": None, "Most exact": ring}
    assert within(100) == {
        "Fastest": "contiguous/q4_0", "Fastest that keeps every token": "contiguous/q4_0", "Most exact": "contiguous/q4_0"
    }  # fmt: skip
    assert within(9999)["Fastest that keeps every token"] == "contiguous/f16"
    assert within(9999)["Most exact"] == "contiguous"


def test_parts_say_what_each_costs():
    placement, codec, retention = points(cells())[0].parts
    assert placement.message.startswith("concat takes 4× (3.9 – 4.1) the time of contiguous.")
    assert codec.message == "Of 4 to 5 stored bits a value: q4_0 loses least (0.1)."
    assert [row[0] for row in codec.rows] == ["contiguous", "contiguous/f16", "contiguous/q4_0", "contiguous/token(bits=4)"]
    assert retention.message == "With 128 tokens kept tova(budget=128) loses least (1.5, an error larger than the output itself)."


def test_equal_errors_are_both_named():
    rows = [*DECODE[:-1], (*DECODE[-1][:6], 3.5, 128)]
    message = points(cells(rows))[0].parts[2].message
    assert "With 128 tokens kept ring(window=124,sinks=4) and tova(budget=128) lose least (3.5" in message


def test_how_quiet_the_machine_was():
    aa = cells(DECODE[:1], verdict="aa_test", ratio_p50=0.85, ratio_ci_low=0.73, ratio_ci_high=0.98)
    noisy = cells(DECODE[2:3], noise="others took 40 %", others_share=0.4)
    (point,) = points(pl.concat([cells(DECODE[:2]), aa, noisy], how="diagonal_relaxed"))
    assert point.quiet.lines[0] == "Other processes took at most 40 % of the processors, other virtual machines 0 %."
    assert "; differences of 15 % are within the noise here" in point.quiet.lines[1]
    assert point.quiet.noisy == [("others took 40 %", ["concat"])]
    assert len(answer(point, "Lossless").same) == 2  # the A/A test is no variant


def test_what_could_not_run_is_grouped_by_its_reason():
    rows = pl.concat([cells(DECODE[:3], status="unsupported", reason="no such kernel"), cells(DECODE[3:4]),
                      cells(DECODE[4:5], status="out_of_memory", reason="needs 96 GiB")], how="diagonal_relaxed")  # fmt: skip
    assert not_run(rows) == [
        ("unsupported", "no such kernel", ["contiguous", "paged", "concat"]),
        ("out of memory", "needs 96 GiB", ["contiguous/q4_0"]),
    ]


def test_the_first_panel_and_its_longest_length_come_first(tmp_path):
    run = load_run(synthetic_run(tmp_path / "run", MANY, lengths=(256, 1024), workloads=("sinks", "gaussian")), "run")
    places = [(point.panel, point.place) for point in points(run.cells)]
    assert places == [(panel, place) for panel in ("sinks", "gaussian") for place in ("1K tokens", "256 tokens")]


def test_a_point_without_times_is_answered_by_bytes_and_errors(tmp_path):
    learn_names([cell["variant"] for cell in budget_cells("gaussian")])
    made = pl.DataFrame(budget_cells("gaussian"), infer_schema_length=None).with_columns(run=pl.lit("a"), bytes_held="held_bytes_per_token")
    (point,) = points(made)
    assert point.front.kinds == ["bytes", "error"]
    assert [question for question, _ in point.within[0].answers] == ["Most exact"]
    assert point.quiet.lines == []
    assert "With 64 tokens kept tova(budget=64) loses least" in point.parts[-1].message
