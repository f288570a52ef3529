"""Every time in cells.csv, recomputed from the samples: by this page's own arithmetic, which shares no code with kvlab."""

from functools import lru_cache
from math import atan, cos, exp, log, pi, sqrt
from os.path import commonprefix
from statistics import median, quantiles, variance

import pytest
from program import cells_by_key, table

PARTS = ("append", "view", "attend", "projections", "state", "rest")
EXACT = pytest.approx  # numbers are printed with nine digits


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
    """Variance of the logarithm of the median: an odd number's is sqrt(pi / 2) (1 - 0.58 / n) times as wide as the mean's."""
    n = len(medians)
    assert n % 2 and n > 2
    return pi / 2 * (1 - 0.58 / n) ** 2 * variance(map(log, medians)) / n


def interval_of_median(medians):
    reach = exp(quantile(0.95, len(medians) - 1) * sqrt(median_variance(medians)))
    middle = median(medians)  # no end lies further out than twice as far as the last value on its side
    return max(middle / reach, min(medians) ** 2 / middle), min(middle * reach, max(medians) ** 2 / middle)


def assert_interval(row, name, medians):
    for end, value in zip(("low", "high"), interval_of_median(medians)):
        assert float(row[name.format(end)]) == EXACT(value, rel=1e-6), name


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


def values(repetitions, column):
    return [[float(row[column] or 0) for row in rows] for _, rows in sorted(repetitions.items())]


def medians_of(repetitions, kind):
    return [median(one) for one in values(repetitions, "attend_us" if kind == "cold" else "step_us")]


def assert_times(row, repetitions, kind):
    """A cell's median of a kind of samples, the interval around it, and what else is said of steps."""
    medians = medians_of(repetitions, kind)
    name = "draft_step" if kind == "draft" else kind
    assert float(row[f"{name}{'_attend' * (kind == 'cold')}_p50_us"]) == EXACT(median(medians), rel=1e-7), (row["cell"], kind)
    if f"{name}_ci_low_us" in row:
        assert_interval(row, name + "_ci_{}_us", medians)
    if kind != "step":
        return
    steps = values(repetitions, "step_us")
    every = [step for repetition in steps for step in repetition]
    parts = [part for part in PARTS if f"{part}_p50_us" in row]
    percentiles = quantiles(every, n=100, method="inclusive")  # linear between the two nearest ranks
    expected = {"step_max_us": max(every), "step_p90_us": percentiles[89], "step_p99_us": percentiles[98]}
    expected |= {f"{part}_p50_us": median(x for one in values(repetitions, f"{part}_us") for x in one) for part in parts
                 if f"{part}_us" in repetitions[0][0]}  # fmt: skip
    for column, value in expected.items():
        assert float(row[column] or 0) == EXACT(value, rel=1e-7, abs=1e-9), (row["cell"], column)
    for sample in (sample for rows in repetitions.values() for sample in rows):
        own = [f"{part}_us" for part in PARTS if f"{part}_us" in sample]
        assert float(sample["step_us"]) == EXACT(sum(float(sample[part] or 0) for part in own), rel=1e-6)
    assert int(row["repetitions"]) == len(steps) and int(row["samples"]) == len(every)


def assert_total(row, baseline, samples):
    """The time of all appends of a repetition, reallocations and copies to read included."""
    own, base = ([sum(float(s["append_us"]) + float(s["view_us"]) for s in rows) for rows in samples[cell["cell"], "step"].values()]
                 for cell in (row, baseline))  # fmt: skip
    assert float(row["append_total_us"]) == EXACT(median(own), rel=1e-6)
    assert_interval(row, "append_total_ci_{}_us", own)
    assert row["verdict"] in ("baseline", "aa_test") or float(row["append_total_ratio_p50"]) == EXACT(median(own) / median(base), rel=1e-6)


def check_interval(row, ratio, error, degrees, confidence):
    assert float(row["ratio_confidence"]) == EXACT(confidence, rel=1e-7), row["cell"]
    reach = exp(quantile(confidence, degrees) * error)
    low, high = float(row["ratio_ci_low"]), float(row["ratio_ci_high"])
    assert low == EXACT(ratio / reach, rel=1e-5) and high == EXACT(ratio * reach, rel=1e-5), row["cell"]
    return low, high


def point_of(row):
    return tuple(row.get(name) for name in ("experiment", "workload", "batch", "seq_len", "lengths"))


def baseline_of(row, cells):
    """The baseline of the row's sweep point: the first variant's, or in prefill an arm of the variant's own."""
    bases = [other for other in cells.values() if other["verdict"] == "baseline" and point_of(other) == point_of(row)]
    return max(bases, key=lambda other: len(commonprefix([row["cell"], other["cell"]])), default=None)


def assert_verdicts(cells, medians):
    """Ratios, their intervals, as wide as Holm's method makes them, and verdicts; returns how many were compared."""
    points, doubted, compared = {}, set(), 0  # doubted: baselines that are noisy, and those that differ from themselves
    for cell, row in cells.items():
        if not row["versus"]:
            continue
        base = baseline_of(row, cells)["cell"]
        doubted |= {base} if cells[base]["noise"] else set()
        ratio = median(medians[cell]) / median(medians[base])
        assert float(row["ratio_p50"]) == EXACT(ratio, rel=1e-7)
        error, degrees = welch(medians[cell], medians[base])
        if row["verdict"] == "aa_test":
            low, high = check_interval(row, ratio, error, degrees, 0.95)
            doubted |= set() if low <= 1 <= high else {(point_of(row), row["versus"])}
        else:
            points.setdefault(point_of(row), []).append((row, base, ratio, error, degrees, beyond(log(ratio) / error, degrees)))
        compared += 1
    for place, comparisons in points.items():
        failed = False
        for rank, (row, base, ratio, error, degrees, p) in enumerate(sorted(comparisons, key=lambda found: found[-1])):
            if not failed:
                level = 0.05 / (len(comparisons) - rank)
                failed = p >= level
            low, high = check_interval(row, ratio, error, degrees, 1 - level)
            expected = "faster" if high < 1 else "slower" if low > 1 else "ambiguous"
            assert row["verdict"] == ("unreliable" if doubted & {base, (place, row["versus"])} else expected), row["cell"]
    return compared


def assert_recomputed(folder):
    """All times of a folder are those of its samples; returns how many cells have some, how many are compared, and how many medians there are."""
    cells, samples = cells_by_key(folder), samples_of(folder)
    totals = [cell for cell in cells.values() if cell.get("append_total_us")]
    for (cell, kind), repetitions in samples.items():
        assert_times(cells[cell], repetitions, kind)
    for row in totals:
        assert_total(row, baseline_of(row, cells), samples)
    timed = {cell for cell, _ in samples}
    for cell, row in cells.items():
        said = [name for name in row if name.endswith("_p50_us") and row[name] and not name.startswith(("replay_", "clock_"))]
        assert cell in timed or not said or row["status"] != "ok", (cell, said)
    kind = "prefill" if all(kind != "step" for _, kind in samples) else "step"
    medians = {cell: medians_of(repetitions, kind) for (cell, of), repetitions in samples.items() if of == kind}
    compared = assert_verdicts(cells, medians) if medians and all("ratio_p50" in row for row in cells.values()) else 0
    told = [kind for _, kind in samples if kind != "draft"]  # check-results leaves drafts out
    return len(timed), compared, len(told) + len(totals)
