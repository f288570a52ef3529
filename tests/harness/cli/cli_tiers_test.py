"""Tiers: what a run says of hot, warm and disk, against formulas of this file's own."""

import os
import time

import pytest
from program import CONFIG, by_variant, results_of, run, start, succeeded, table

HEADS, DIM, TOKENS, HOT, WARM, CHUNK = 2, 32, 3000, 500, 900, 512
TIERED = {
    "model.kv_heads": HEADS, "model.head_dim": DIM, "sweep.seq_len": TOKENS, "growth.seq_len": 2000, "growth.attend": False, "measure.cold_steps": 2,
    "sweep.variants": ["contiguous/f16", f"tiered(hot={HOT},warm={WARM},io={{buffered,direct}})/{{f32,q8_0}}",
                       f"tiered(hot={HOT},warm={WARM},link_gbps=0.5)"],
}  # fmt: skip
ROW_BYTES = {"f32": 2 * DIM * 4, "q8_0": 2 * DIM // 32 * 34, "q4_0": 2 * DIM // 32 * 18}  # K and V of one head

folder = results_of(CONFIG, TIERED)


def tiered_rows(folder, experiment):
    rows = [row for row in table(folder / "cells.csv") if row["experiment"] == experiment]
    for row in rows:
        if row["status"] == "unsupported" and "O_DIRECT" in row["reason"]:
            continue  # not on this file system
        assert row["status"] == "ok", row["reason"]
        if row["variant"].startswith("tiered"):
            yield row, "q8_0" if row["variant"].endswith("/q8_0") else "f32"


def whole_chunks(rows):
    return max(0, rows) // CHUNK * CHUNK


@pytest.mark.parametrize("experiment", ["decode", "growth"])
def test_bytes_of_each_tier_are_what_the_lengths_say(folder, experiment):
    seen = 0
    for row, codec in tiered_rows(folder, experiment):
        seen += 1
        tokens = int(row["seq_len"])
        disk = whole_chunks(tokens - HOT - WARM)
        warm = whole_chunks(tokens - HOT) - disk
        hot = tokens - warm - disk
        of_row = HEADS * ROW_BYTES[codec]
        slot = -(-CHUNK * of_row // 4096) * 4096
        assert int(row["bytes_hot"]) == -(-hot // CHUNK) * CHUNK * of_row
        assert int(row["bytes_warm"]) == int(row["read_warm_bytes"]) == warm * of_row
        assert int(row["bytes_disk"]) == int(row["read_disk_bytes"]) == disk // CHUNK * slot
        assert int(row["read_hot_bytes"]) == hot * of_row
    assert seen >= 3


def test_bandwidths_are_compared_with_their_ceilings(folder):
    for row, _ in tiered_rows(folder, "decode"):
        for tier in ("hot", "warm", "disk"):
            gbps, ceiling, share = (float(row[f"{tier}_{name}"]) for name in ("read_gbps", "ceiling_gbps", "ceiling_share"))
            assert gbps > 0 and ceiling > 0
            assert share == pytest.approx(gbps / ceiling)
        assert row["tier_bound"] in ("memory", "disk", "compute")
        memory = sum(int(row[f"read_{tier}_bytes"]) / float(row[f"{tier}_ceiling_gbps"]) for tier in ("hot", "warm"))
        disk = int(row["read_disk_bytes"]) / float(row["disk_ceiling_gbps"])
        compute = float(row["multiply_adds"]) / float(row["multiply_add_peak_per_s"]) * 1e9
        assert float(row["tier_bound_us"]) == pytest.approx(max(memory, disk, compute) * 1e-3)
        assert float(row["tier_bound_share"]) == pytest.approx(float(row["tier_bound_us"]) / float(row["attend_p50_us"]))


def test_the_page_cache_is_told_from_the_disk(folder):
    """What was just written lies in the page cache; io=direct passes it by."""
    for row, _ in tiered_rows(folder, "decode"):
        if row["disk_device_share"] == "":
            continue  # the system does not say
        if "io=direct" in row["variant"]:
            assert float(row["disk_device_share"]) in (0, pytest.approx(1, abs=0.1))  # 0: a file system in memory
        else:
            assert float(row["disk_device_share"]) < 0.1


def test_a_link_slows_the_file_and_is_said(folder):
    for row, _ in tiered_rows(folder, "decode"):
        slowed = "link_gbps=0.5" in row["variant"]
        assert row["simulated"] == ("link" if slowed else "")
        if slowed:
            assert float(row["disk_read_gbps"]) <= 0.5 and float(row["disk_ceiling_gbps"]) <= 0.5


def test_what_is_hidden_is_a_share(folder):
    shares = [float(row["disk_hidden_share"]) for row, _ in tiered_rows(folder, "decode")]
    assert shares and all(0 <= share <= 1 for share in shares)


def test_all_heads_of_short_sequences_are_verified(folder):
    for row, _ in tiered_rows(folder, "decode"):
        assert row["err_heads"] == "4" and row["err_sample"] == ""


def test_caches_get_no_more_than_measure_memory(folder, tmp_path):
    # Copies for cold steps would take more than this limit.
    limit = {"measure.memory": '"1MiB"', "experiment": "decode", "measure.cold_steps": 0}
    done = succeeded(run(folder / "config.toml", tmp_path / "out", limit))
    assert "of disk in" in done.stderr and "free" in done.stderr
    rows = by_variant(table(tmp_path / "out" / "cells.csv"))
    assert rows["contiguous/f16"]["status"] == "out_of_memory"  # 0.8 MB, with a fork of the same size
    assert "caches may use 1.00 MiB (measure.memory)" in rows["contiguous/f16"]["reason"]
    tiered = rows[f"tiered(hot={HOT},warm={WARM})/q8_0"]
    assert tiered["status"] == "out_of_memory" or int(tiered["bytes_hot"]) + int(tiered["bytes_warm"]) < 1 << 20


def test_other_placements_have_one_tier(folder):
    columns = [name for name in table(folder / "cells.csv")[0] if name.startswith(("tier_", "hot_", "warm_", "disk_"))]
    assert len(columns) == 14
    for row in table(folder / "cells.csv"):
        if not row["variant"].startswith("tiered"):
            assert {row[name] for name in [*columns, "bytes_hot", "bytes_warm", "read_hot_bytes"]} == {""}


def open_files_in(pid, folder):
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        found += [target] * target.startswith(str(folder))
    return found


def test_a_kill_leaves_no_file(folder, tmp_path):
    tiers = tmp_path / "tiers"
    tiers.mkdir()
    long = {"experiment": "decode", "sweep.variants": [f"tiered(hot=500,warm=900,dir={tiers})"], "measure.repetitions": 500}
    child = start(folder / "config.toml", tmp_path / "out", long)
    seen = []
    while not seen and child.poll() is None:
        seen = open_files_in(child.pid, tiers)
        time.sleep(0.005)
    child.kill()
    child.communicate()
    assert seen, "it ended before it had a file"
    assert list(tiers.iterdir()) == []
