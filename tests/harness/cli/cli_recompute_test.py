"""Every time in cells.csv, recomputed from the samples: by this page's own arithmetic, which shares no code with kvlab."""

from functools import lru_cache
from math import atan, cos, exp, log, pi, sqrt
from statistics import median, variance

import pytest
from program import REPETITIONS, STEPS, cells_by_key, table

PARTS = ("append", "view", "attend")
EXACT = pytest.approx  # numbers are printed with nine digits
assert REPETITIONS == 5


def percentile(values, p):
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    return ordered[low] + (rank - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def simpson(function, low, high, steps=400):
    at = [function(low + (high - low) * i / steps) for i in range(steps + 1)]
    return (at[0] + at[-1] + 4 * sum(at[1:-1:2]) + 2 * sum(at[2:-1:2])) * (high - low) / steps / 3


def beyond(t, degrees):
    """The probability of Student's t beyond -t and t, by t = sqrt(degrees) tan(angle), whose density is a power of a cosine."""
    density = lambda angle: max(cos(angle), 0.0) ** (degrees - 1)  # noqa: E731
    return simpson(density, atan(abs(t) / sqrt(degrees)), pi / 2) / simpson(density, 0, pi / 2)


@lru_cache
def quantile(confidence, degrees):
    low, high = 0.0, 200.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, degrees) > 1 - confidence else (low, middle)
    return low


def median_variance(medians):
    """Of the logarithm of the median: an odd number's is sqrt(pi / 2) (1 - 0.58 / n) times as wide as the mean's."""
    n = len(medians)
    return pi / 2 * (1 - 0.58 / n) ** 2 * variance(map(log, medians)) / n


def interval_of_median(medians):
    reach = exp(quantile(0.95, len(medians) - 1) * sqrt(median_variance(medians)))
    middle = median(medians)  # no end lies further out than twice as far as the last value on its side
    return max(middle / reach, min(medians) ** 2 / middle), min(middle * reach, max(medians) ** 2 / middle)


def assert_interval(row, name, medians):
    for end, value in zip(("low", "high"), interval_of_median(medians)):
        assert float(row[name.format(end)]) == EXACT(value, rel=1e-6)


def assert_rate(row, kind):
    rate = float(row[kind + "read_gbps"])
    assert rate == EXACT(int(row["bytes_payload"]) / float(row[kind + "attend_p50_us"]) / 1e3, rel=1e-6)
    assert float(row[kind + "ceiling_share"]) == EXACT(rate / float(row[kind + "ceiling_gbps"]), rel=1e-6)


def welch(a, b):
    """The standard error of log(median(a) / median(b)), and its degrees of freedom."""
    of_a, of_b = median_variance(a), median_variance(b)
    both = of_a + of_b
    return sqrt(both), both**2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))


def samples_of(folder):
    """By cell and kind the repetitions: lists of samples, each in the order in which they were taken."""
    samples = {}
    for name in ("samples.csv", "growth.csv"):
        for row in table(folder / name) if (folder / name).exists() else []:
            by_repetition = samples.setdefault((row["cell"], row.get("kind", "step")), {})
            by_repetition.setdefault(int(row["repetition"]), []).append(row)
    return samples


@pytest.fixture(scope="module")
def runs(results):
    return results, cells_by_key(results), samples_of(results)


def values(repetitions, column):
    return [[float(row[column] or 0) for row in rows] for _, rows in sorted(repetitions.items())]


def assert_times(row, repetitions, parts):
    """A cell's times are those of its samples; returns the repetitions' medians."""
    steps = values(repetitions, "step_us")
    every, medians = [step for repetition in steps for step in repetition], [median(repetition) for repetition in steps]
    expected = {"step_p50_us": median(medians), "step_max_us": max(every), **{f"step_p{p}_us": percentile(every, p) for p in (90, 99)}}
    for part in parts:
        expected[f"{part}_p50_us"] = median(x for repetition in values(repetitions, f"{part}_us") for x in repetition)
    for column, value in expected.items():
        assert float(row[column] or 0) == EXACT(value, rel=1e-7, abs=1e-9), column
    for sample in (sample for rows in repetitions.values() for sample in rows):
        assert float(sample["step_us"]) == EXACT(sum(float(sample[f"{part}_us"] or 0) for part in parts), rel=1e-6)
    assert int(row["repetitions"]) == len(steps) == REPETITIONS and int(row["samples"]) == len(every)
    assert_interval(row, "step_ci_{}_us", medians)
    return medians


def test_times_are_those_of_the_samples(runs):
    _, cells, samples = runs
    for cell, row in cells.items():
        assert_times(row, samples[cell, "step"], PARTS)
        assert all(max(map(max, values(samples[cell, "step"], f"{part}_us"))) > 0 for part in PARTS)


def test_cold_times_are_those_of_the_samples(cold_results):
    cells, samples = cells_by_key(cold_results), samples_of(cold_results)
    assert len(cells) == 4
    for cell, row in cells.items():
        medians = [median(repetition) for repetition in values(samples[cell, "cold"], "attend_us")]
        assert float(row["cold_attend_p50_us"]) == EXACT(median(medians), rel=1e-7)
        assert_interval(row, "cold_ci_{}_us", medians)
        if "q8_0" not in row["variant"]:  # f32 and f16 have no scales, which are read as well
            assert_rate(row, "cold_")


def test_ratios_and_verdicts_are_those_of_the_samples(runs):
    _, cells, samples = runs
    points = {}  # by sweep point: [(row, ratio, standard error, degrees, p)]
    compared, doubted = 0, set()  # sweep points whose baseline is noisy or differs from itself
    for cell, row in cells.items():
        place = tuple(row[name] for name in ("experiment", "seq_len", "batch", "workload"))
        if not row["versus"]:
            doubted |= {place} if row["noise"] else set()
            assert row["verdict"] == "baseline"
            continue
        baseline = next(key for key, other in cells.items() if other["verdict"] == "baseline"
                        and place == tuple(other[name] for name in ("experiment", "seq_len", "batch", "workload")))  # fmt: skip
        assert cells[baseline]["variant"] == row["versus"]
        own, base = ([median(r) for r in values(samples[key, "step"], "step_us")] for key in (cell, baseline))
        ratio = median(own) / median(base)
        assert float(row["ratio_p50"]) == EXACT(ratio, rel=1e-7)
        error, degrees = welch(own, base)
        found = (row, ratio, error, degrees, beyond(log(ratio) / error, degrees))
        if row["verdict"] == "aa_test":
            low, high = check_interval(*found[:4], 0.95)
            doubted |= set() if low <= 1 <= high else {place}
        else:
            points.setdefault(place, []).append(found)
        compared += 1
    assert compared == 24
    for place, comparisons in points.items():
        failed = False
        for rank, (row, ratio, error, degrees, p) in enumerate(sorted(comparisons, key=lambda found: found[-1])):
            if not failed:
                level = 0.05 / (len(comparisons) - rank)  # Holm's
                failed = p >= level
            low, high = check_interval(row, ratio, error, degrees, 1 - level)
            assert row["verdict"] == ("unreliable" if place in doubted else "faster" if high < 1 else "slower" if low > 1 else "ambiguous")


def check_interval(row, ratio, error, degrees, confidence):
    assert float(row["ratio_confidence"]) == EXACT(confidence, rel=1e-7)
    reach = exp(quantile(confidence, degrees) * error)
    low, high = float(row["ratio_ci_low"]), float(row["ratio_ci_high"])
    assert low == EXACT(ratio / reach, rel=1e-5) and high == EXACT(ratio * reach, rel=1e-5)
    return low, high


def test_read_rates_are_bytes_over_time(runs):
    for row in runs[1].values():
        if row["experiment"] == "decode":
            assert_rate(row, "")


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
            assert [int(row["token"]) for row in rows] == list(range(1, int(cells[cell]["seq_len"]) + 1))
            for column in ("bytes_payload", "bytes_metadata", "bytes_slack"):
                assert rows[-1][column] == cells[cell][column]
            copied = [int(row["bytes_copied"]) for row in rows]
            assert copied == sorted(copied) and copied[-1] == int(cells[cell]["bytes_copied"])
    assert STEPS > 1
