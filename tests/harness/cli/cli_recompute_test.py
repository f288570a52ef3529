"""Every time in cells.csv, recomputed from the samples: by this page's own arithmetic, which shares no code with kvlab."""

import random
from statistics import median

import pytest
from program import REPETITIONS, STEPS, cells_by_key, run, table

PARTS = ("append_us", "view_us", "attend_us")
EXACT = pytest.approx  # numbers are printed with nine digits
assert REPETITIONS == 5


def percentile(values, p):
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    return ordered[low] + (rank - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


@pytest.fixture(scope="module")
def runs(config, tmp_path_factory):
    """The rows, and by cell its repetitions: lists of samples, each in the order in which they were taken."""
    folder = tmp_path_factory.mktemp("recompute") / "run"
    done = run(config, folder, "--set", "growth.seq_len=24")
    assert done.returncode == 0, done.stderr
    samples = {}
    for name, kind_of in (("samples.csv", lambda row: row["kind"]), ("growth.csv", lambda row: "step")):
        for row in table(folder / name):
            by_repetition = samples.setdefault((row["cell"], kind_of(row)), {})
            by_repetition.setdefault(int(row["repetition"]), []).append(row)
    return folder, cells_by_key(folder), samples


def values(repetitions, column):
    return [[float(row[column] or 0) for row in rows] for _, rows in sorted(repetitions.items())]


def test_times_are_those_of_the_samples(runs):
    _, cells, samples = runs
    for cell, row in cells.items():
        steps = values(samples[cell, "step"], "step_us")
        every = [step for repetition in steps for step in repetition]
        medians = [median(repetition) for repetition in steps]
        assert float(row["step_p50_us"]) == EXACT(median(medians), rel=1e-7)
        assert float(row["step_p90_us"]) == EXACT(percentile(every, 90), rel=1e-7)
        assert float(row["step_p99_us"]) == EXACT(percentile(every, 99), rel=1e-7)
        assert float(row["step_max_us"]) == EXACT(max(every), rel=1e-7)
        assert int(row["repetitions"]) == len(steps) == REPETITIONS and int(row["samples"]) == len(every)
        for part in PARTS:
            took = median(x for repetition in values(samples[cell, "step"], part) for x in repetition)
            said = row[part.replace("_us", "_p50_us")]
            assert float(said or 0) == EXACT(took, rel=1e-7, abs=1e-9), part
        # Of five medians drawn from five, the smallest is their median in 5.8 % of all draws: the interval is the range.
        assert float(row["step_ci_low_us"]) == EXACT(min(medians), rel=1e-7)
        assert float(row["step_ci_high_us"]) == EXACT(max(medians), rel=1e-7)
        for step in (sample for rows in samples[cell, "step"].values() for sample in rows):
            assert float(step["step_us"]) == EXACT(sum(float(step[part] or 0) for part in PARTS), rel=1e-6)


def test_cold_times_are_those_of_the_samples(config, tmp_path):
    """Of rows that are large enough for few copies of them to fill the last-level cache."""
    large = ["--set", "model.q_heads=8", "--set", "model.kv_heads=8", "--set", "model.head_dim=128"]
    done = run(config, tmp_path / "out", *large, "--set", 'experiment="decode"', "--set", "sweep.seq_len=512",
               "--set", 'sweep.variants=["contiguous", "contiguous/f16"]', "--set", "measure.cold_steps=3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    samples = {}
    for row in table(tmp_path / "out" / "samples.csv"):
        if row["kind"] == "cold":
            samples.setdefault(row["cell"], {}).setdefault(int(row["repetition"]), []).append(row)
    cells = cells_by_key(tmp_path / "out")
    assert len(samples) == len(cells) == 3
    for cell, row in cells.items():
        medians = [median(repetition) for repetition in values(samples[cell], "attend_us")]
        assert float(row["cold_attend_p50_us"]) == EXACT(median(medians), rel=1e-7)
        assert float(row["cold_ci_low_us"]) == EXACT(min(medians), rel=1e-7)
        assert float(row["cold_ci_high_us"]) == EXACT(max(medians), rel=1e-7)
        assert float(row["cold_read_gbps"]) == EXACT(
            int(row["bytes_payload"]) / float(row["cold_attend_p50_us"]) / 1e3, rel=1e-6)
        share = float(row["cold_read_gbps"]) / float(row["cold_ceiling_gbps"])
        assert float(row["cold_ceiling_share"]) == EXACT(share, rel=1e-6)


def test_ratios_and_verdicts_are_those_of_the_samples(runs):
    _, cells, samples = runs
    draw = random.Random(1)
    compared = 0
    for cell, row in cells.items():
        if not row["versus"]:
            assert row["verdict"] == "baseline"
            continue
        place = ("experiment", "seq_len", "batch", "workload")
        baseline = next(key for key, other in cells.items() if other["verdict"] == "baseline"
                        and all(other[name] == row[name] for name in place))  # fmt: skip
        assert cells[baseline]["variant"] == row["versus"]
        own, base = ([median(r) for r in values(samples[key, "step"], "step_us")] for key in (cell, baseline))
        assert float(row["ratio_p50"]) == EXACT(median(own) / median(base), rel=1e-7)
        ratios = [median(draw.choices(own, k=5)) / median(draw.choices(base, k=5)) for _ in range(20000)]
        low, high = float(row["ratio_ci_low"]), float(row["ratio_ci_high"])
        slack = 1e-7
        assert percentile(ratios, 1.2) * (1 - slack) <= low <= percentile(ratios, 4) * (1 + slack)
        assert percentile(ratios, 96) * (1 - slack) <= high <= percentile(ratios, 98.8) * (1 + slack)
        if row["verdict"] != "aa_test":
            assert row["verdict"] == ("faster" if high < 1 else "slower" if low > 1 else "ambiguous")
        compared += 1
    assert compared >= 18


def test_read_rates_are_bytes_over_time(runs):
    _, cells, samples = runs
    for cell, row in cells.items():
        if row["experiment"] != "decode":
            continue
        bytes_read = int(row["bytes_payload"])  # f32 and f16 have no scales
        assert float(row["read_gbps"]) == EXACT(bytes_read / float(row["attend_p50_us"]) / 1e3, rel=1e-6)
        share = float(row["read_gbps"]) / float(row["ceiling_gbps"])
        assert float(row["ceiling_share"]) == EXACT(share, rel=1e-6)


def test_repetitions_of_different_cells_are_interleaved(runs):
    """Each sweep point's repetitions come in drawn order: never all of one cell before all of another."""
    folder, cells, _ = runs
    order = []  # (cell, repetition), as they were taken
    for row in table(folder / "samples.csv"):
        if row["kind"] == "step" and (not order or order[-1] != (row["cell"], row["repetition"])):
            order.append((row["cell"], row["repetition"]))
    for length in ("32", "64"):
        here = [cell for cell, _ in order if cells[cell]["seq_len"] == length]
        assert len(here) == REPETITIONS * len(set(here))
        changes = sum(a != b for a, b in zip(here, here[1:]))
        assert changes > 2 * len(set(here)), here  # one after the other would change len - 1 times


def test_growth_counts_what_the_cell_holds_in_the_end(runs):
    _, cells, samples = runs
    for (cell, _), repetitions in samples.items():
        if cells[cell]["experiment"] != "growth":
            continue
        for rows in repetitions.values():
            assert [int(row["token"]) for row in rows] == list(range(1, 25))
            for column in ("bytes_payload", "bytes_metadata", "bytes_slack"):
                assert rows[-1][column] == cells[cell][column]
            copied = [int(row["bytes_copied"]) for row in rows]
            assert copied == sorted(copied) and copied[-1] == int(cells[cell]["bytes_copied"])
    assert STEPS > 1
