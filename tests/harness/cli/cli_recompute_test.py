"""Times of tiny rows, recomputed from the samples (recomputed.py): what experiment_contract_test.py does not ask of every experiment."""

import pytest
from program import REPETITIONS, STEPS, cells_by_key, table
from recomputed import EXACT, assert_recomputed, samples_of, values


@pytest.fixture(scope="module")
def runs(results):
    return results, cells_by_key(results), samples_of(results)


def assert_rate(row, kind):
    rate = float(row[kind + "read_gbps"])
    assert rate == EXACT(int(row["bytes_payload"]) / float(row[kind + "attend_p50_us"]) / 1e3, rel=1e-6)
    assert float(row[kind + "ceiling_share"]) == EXACT(rate / float(row[kind + "ceiling_gbps"]), rel=1e-6)


def test_every_part_of_a_step_takes_time(runs):
    _, cells, samples = runs
    for cell, row in cells.items():
        assert int(row["repetitions"]) == REPETITIONS
        assert all(max(map(max, values(samples[cell, "step"], f"{part}_us"))) > 0 for part in ("append", "view", "attend"))


def test_cold_times_are_those_of_the_samples(cold_results):
    assert assert_recomputed(cold_results)[:2] == (4, 3)
    for row in table(cold_results / "cells.csv"):
        assert row["cold_attend_p50_us"]
        if "q8_0" not in row["variant"]:  # f32 and f16 have no scales, which are read as well
            assert_rate(row, "cold_")


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
