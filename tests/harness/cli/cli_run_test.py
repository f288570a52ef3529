"""An ordinary run, as its users meet it: files, columns, times, what is left out."""

import json
import os
import pty
import re
import select
from collections import Counter

import pytest
from program import (
    CONFIG, HEAD_DIM, KV_HEADS, Q_HEADS, REPETITIONS, STEPS, TIMEOUT_S, TOKENS, by_variant, cells_by_key, cells_of, kvlab, results_of, run,
    start, succeeded, table, unmeasured_cells,
)  # fmt: skip
from recomputed import assert_recomputed

ISSUE_COLUMNS = """variant device threads experiment phase workload layers q_heads kv_heads head_dim batch seq_len
status reason kernel bytes_payload bytes_metadata bytes_slack bytes_workspace_peak bytes_copied bytes_predicted
bytes_device_peak rss_peak_bytes bytes_read append_p50_us attend_p50_us step_p50_us step_p90_us step_p99_us step_max_us step_ci_low_us
step_ci_high_us cold_attend_p50_us read_gbps ceiling_gbps ceiling_share err_max_abs err_rel_l2 err_cosine
err_attn_kl err_codec_rel_l2 err_retention_rel_l2 err_kernel_rel_l2""".split()
COLD_COLUMNS = """cold_attend_p50_us cold_read_gbps cold_ceiling_gbps cold_ceiling_share cold_bound cold_bound_us
cold_bound_share cold_ratio_p50""".split()
ROW_BYTES = 2 * KV_HEADS * HEAD_DIM * 4  # K and V of one token in f32


def test_list_columns_says_what_every_table_holds(results):
    """The listing, columns.json and the tables' headers come from one schema."""
    listed, tables = {}, []
    for line in kvlab("list", "columns").stdout.splitlines():
        if line and not line.startswith(" "):
            tables.append(line)
        elif line:
            listed.setdefault(tables[-1], []).append(line.split()[0])
    assert tables == ["cells.csv", "samples.csv", "growth.csv", "positions.csv", "texts.csv", "replay.csv", "hits.csv",
                      "heads.csv"]
    columns = json.loads((results / "columns.json").read_text())
    headers = {name: (results / name).read_text().splitlines()[0].split(",") for name in ("cells.csv", "samples.csv", "growth.csv")}
    for name, header in headers.items():
        assert header == [column for column in listed[name] if column in header]
    alone = re.compile(r"(?!(of|what|where|as|which|whether|its|and|likewise|that|these)\b)\w")
    assert [column["name"] for column in columns if not alone.match(column["meaning"])] == []
    by_name = {column["name"]: column for column in columns}
    meaning = "encoded K and V of kept tokens"
    described = {"name": "bytes_payload", "unit": "bytes", "type": "integer", "meaning": meaning, "aliases": []}
    assert by_name["bytes_payload"].items() >= described.items()
    assert {"decode", "quality"} <= set(by_name["bytes_payload"]["experiments"])
    assert by_name["ceiling_share"]["experiments"] == ["decode", "model"]
    assert by_name["status"]["values"] == ["ok", "failed", "unsupported", "out_of_memory"]
    assert by_name["err_rel_l2"]["type"] == "number" and by_name["status"]["type"] == "text"


def test_kept_tokens_are_the_mean_over_heads(config, tmp_path):
    """One of the two heads keeps all 64 tokens, the other 8 + 4."""
    duo = "contiguous/f16/duo(recent=8,sinks=4,retrieval={})".format
    rows = cells_of(config, tmp_path / "out", {"experiment": "decode", "sweep.seq_len": 64, "sweep.variants": [duo(0), duo(1), "contiguous"]})
    kept = {row["variant"]: [int(row["kept_tokens" + end]) for end in ("", "_min", "_max")] for row in rows}
    assert kept == {duo(0): [38, 12, 64], duo(1): [38, 12, 64], "contiguous": [64, 64, 64]}


def test_a_budget_beyond_the_length_is_told(config, tmp_path):
    """A ring of 64 over 32 tokens keeps them all: its row says so, and so does the terminal."""
    variants = "contiguous/ring(window={16,48,64})"
    done = succeeded(run(config, tmp_path / "out", {"experiment": "decode", "sweep.seq_len": [32, 64], "sweep.variants": variants,
                                                    "sweep.baseline": '"contiguous/ring(window=48)"'}))  # fmt: skip
    rows = [row for row in table(tmp_path / "out" / "cells.csv") if row["verdict"] != "aa_test"]
    keeps = {(row["variant"], row["seq_len"]): row["keeps_all"] for row in rows}
    ring = "contiguous/ring(window={})".format
    assert keeps == {(ring(16), "32"): "0", (ring(16), "64"): "0", (ring(48), "32"): "1", (ring(48), "64"): "0",
                     (ring(64), "32"): "1", (ring(64), "64"): "1"}
    assert all(int(row["kept_tokens"]) == int(row["seq_len"]) for row in rows if row["keeps_all"] == "1")
    (warning,) = [line for line in done.stdout.splitlines() if line.startswith("Warning: ")]
    assert "4 of 8 cells keep every token" in warning  # the A/A test of the baseline is one of them
    assert {row["versus"] for row in rows if row["verdict"] != "baseline"} == {ring(48)}


def test_cells_have_every_column_and_succeed(results):
    cells = cells_by_key(results)
    # Six variants and the A/A test in each sweep point; decode and growth at two lengths.
    assert len(cells) == 4 * 7
    for row in cells.values():
        assert all(row[column] is not None for column in ISSUE_COLUMNS)  # a column that no table has is an error
        assert (row["status"], row["reason"], row["device"], row["threads"]) == ("ok", "", "cpu", "1")
        shape = [int(row[c]) for c in ("layers", "q_heads", "kv_heads", "head_dim", "batch")]
        assert shape == [1, Q_HEADS, KV_HEADS, HEAD_DIM, 1]
        assert row["phase"] == "decode" and row["workload"] == "gaussian" and row["kernel"]
        assert int(row["bytes_payload"]) == int(row["seq_len"]) * ROW_BYTES // (2 if "f16" in row["variant"] else 1)
        assert sum(int(row[f"bytes_{kind}"]) for kind in ("payload", "metadata", "slack")) == int(row["bytes_predicted"])


def test_shares_of_ceilings_are_those_of_the_times_and_without_cold_steps_there_are_no_cold_ones(results):
    for row in cells_by_key(results).values():
        assert 0 < float(row["attend_p50_us"]) <= float(row["step_p99_us"])
        assert [row[c] for c in COLD_COLUMNS] == [""] * len(COLD_COLUMNS)
        if row["experiment"] == "decode":
            assert_share(row, "")


def assert_share(row, kind):
    read, ceiling, took = (float(row[kind + c]) for c in ("read_gbps", "ceiling_gbps", "attend_p50_us"))
    assert read > 0 and float(row[kind + "ceiling_share"]) == pytest.approx(read / ceiling, rel=1e-6)
    if "q8_0" not in row["variant"]:  # f32 and f16 have no scales, which are read as well
        assert read == pytest.approx(int(row["bytes_payload"]) / took / 1e3, rel=1e-6)
    assert float(row["multiply_add_peak_spread"]) >= 1
    adds = int(row["multiply_adds"])
    assert adds == 2 * int(row["q_heads"]) * int(row["seq_len"]) * int(row["head_dim"])
    compute, memory = 1e6 * adds / float(row["multiply_add_peak_per_s"]), took * read / ceiling
    assert row[kind + "bound"] == ("compute" if compute > memory else "memory")
    assert float(row[kind + "bound_us"]) == pytest.approx(max(compute, memory), rel=1e-6)
    assert float(row[kind + "bound_share"]) == pytest.approx(max(compute, memory) / took, rel=1e-6)


# Rows are large enough for few copies of them to fill the last-level cache.
cold_results = results_of(CONFIG, {
    "model.q_heads": 8, "model.kv_heads": 8, "model.head_dim": 128, "experiment": "decode", "sweep.seq_len": 512,
    "sweep.variants": ["contiguous", "contiguous/q8_0", "contiguous/f16"], "measure.cold_steps": 3,
})  # fmt: skip


def test_cold_reads_have_columns_and_samples_of_their_own(cold_results):
    rows, samples = (table(cold_results / name) for name in ("cells.csv", "samples.csv"))
    for row in rows:
        assert_share(row, "")
        assert_share(row, "cold_")
    assert assert_recomputed(cold_results)[:2] == (4, 3) and rows[0]["cold_ratio_p50"] == ""
    f32, _, q8_0, _ = (float(row["cold_attend_p50_us"]) for row in rows)
    assert float(rows[2]["cold_ratio_p50"]) == pytest.approx(q8_0 / f32, rel=1e-6)
    kinds = Counter((r["kind"], r["repetition"]) for r in samples)
    assert kinds == {(kind, str(i)): 4 * n for kind, n in (("step", STEPS), ("cold", 3)) for i in range(REPETITIONS)}


def test_errors_are_of_the_codec(results):
    for row in cells_by_key(results).values():
        error, codec = float(row["err_rel_l2"]), float(row["err_codec_rel_l2"])
        assert float(row["err_kernel_rel_l2"]) < 1e-5
        assert row["err_retention_rel_l2"] == "0"
        if "f16" in row["variant"]:
            # Half a unit in the last of 11 bits is at most 4.9e-4 a value.
            assert 1e-5 < error < 1e-3 and codec == pytest.approx(error, rel=0.1)
        else:
            assert error < 1e-5 and codec == 0
        assert float(row["err_cosine"]) == pytest.approx(1, abs=1e-6)


def test_concat_copies_quadratically_and_doubling_linearly(results):
    cells = cells_by_key(results)
    for n in (32, TOKENS):
        copied = {v: int(cells[f"growth gaussian b1 s{n} {v}"]["bytes_copied"]) for v in
                  ("contiguous", "doubling", "doubling(read=copy)", "concat", "concat/f16")}
        assert copied["contiguous"] == 0
        assert copied["concat"] == n * (n - 1) // 2 * ROW_BYTES
        assert copied["concat/f16"] == copied["concat"] // 2
        # Growth from 1: every doubling copies what is there, 1 + 2 + 4 + ... < n.
        assert 0 < copied["doubling"] < n * ROW_BYTES
        # Slicing copies all rows at every step, on top of that.
        assert copied["doubling(read=copy)"] == copied["doubling"] + n * (n + 1) // 2 * ROW_BYTES


def test_samples_hold_every_step(results):
    samples, growth = table(results / "samples.csv"), table(results / "growth.csv")
    steps, grown = (Counter(row["cell"] for row in rows) for rows in (samples, growth))
    for key, row in cells_by_key(results).items():
        is_decode = row["experiment"] == "decode"
        assert (steps[key], grown[key]) == ((REPETITIONS * STEPS, 0) if is_decode else (0, REPETITIONS * int(row["seq_len"])))
        own = [sample for sample in (samples if is_decode else growth) if sample["cell"] == key]
        assert all(max(float(sample[f"{part}_us"]) for sample in own) > 0 for part in ("append", "view", "attend"))
        for column in ("bytes_payload", "bytes_metadata", "bytes_slack", "bytes_copied") if not is_decode else ():
            assert own[-1][column] == row[column]  # in the end it holds what the cell holds


def test_repetitions_of_different_cells_are_interleaved(results):
    """Each sweep point's repetitions come in drawn order: never all of one cell before all of another."""
    cells, order = cells_by_key(results), []  # (cell, repetition), as they were taken
    for row in table(results / "samples.csv"):
        if not order or order[-1] != (row["cell"], row["repetition"]):
            order.append((row["cell"], row["repetition"]))
    for length in ("32", "64"):
        here = [cell for cell, _ in order if cells[cell]["seq_len"] == length]
        assert len(here) == REPETITIONS * len(set(here))
        assert sum(a != b for a, b in zip(here, here[1:])) > 2 * len(set(here)), here  # one after the other would change len - 1 times


def test_growth_keeps_every_step_in_order(results):
    rows = [r for r in table(results / "growth.csv") if r["cell"] == f"growth gaussian b1 s{TOKENS} concat"]
    for repetition in range(REPETITIONS):
        mine = [r for r in rows if r["repetition"] == str(repetition)]
        assert [int(r["token"]) for r in mine] == list(range(1, TOKENS + 1))
        assert [int(r["bytes_payload"]) for r in mine] == [t * ROW_BYTES for t in range(1, TOKENS + 1)]
        assert [int(r["bytes_copied"]) for r in mine] == [t * (t - 1) // 2 * ROW_BYTES for t in range(1, TOKENS + 1)]


def test_environment_says_what_ran(results):
    env = json.loads((results / "env.json").read_text())
    assert env["cpu"]["cores"] >= 1 and env["threads"] == 1 and env["seed"] == 1
    assert env["kvlab"]["version"] and env["compiler"] and env["isa"] in env["isas"]
    assert env["config"]["title"] == "tiny" and env["started"] <= env["finished"]


def test_benchmark_json_is_google_benchmarks(results):
    report = json.loads((results / "benchmark.json").read_text())
    assert {"date", "num_cpus", "library_build_type"} <= set(report["context"])
    repetitions = Counter()
    for entry in report["benchmarks"]:
        assert entry["run_type"] == "iteration" and entry["time_unit"] in ("ns", "us", "ms", "s")
        assert entry["real_time"] > 0 and entry["cpu_time"] > 0 and entry["iterations"] >= 1
        repetitions[entry["name"]] += 1
    assert set(cells_by_key(results)) <= set(repetitions)
    assert set(repetitions.values()) == {REPETITIONS}


def test_the_config_as_run_runs_again(results, tmp_path):
    succeeded(run(results / "config.toml", tmp_path / "again", cwd=tmp_path))
    assert (tmp_path / "again" / "config.toml").read_text() == (results / "config.toml").read_text()
    first, again = cells_by_key(results), cells_by_key(tmp_path / "again")
    assert list(first) == list(again)
    exact = ["status", "kernel", "bytes_predicted", "bytes_copied", "err_rel_l2", "err_attn_kl", "samples"]
    for key in first:
        assert [first[key][c] for c in exact] == [again[key][c] for c in exact]


def test_few_repetitions_give_no_interval(config, tmp_path):
    done = succeeded(run(config, tmp_path / "out", {"measure.repetitions": 2, "sweep.seq_len": 8}))
    for row in cells_by_key(tmp_path / "out").values():
        assert row["step_ci_low_us"] == row["step_ci_high_us"] == row["ratio_ci_low"] == row["ratio_ci_high"] == ""
        assert row["verdict"] in ("baseline", "aa_test", "ambiguous", "unreliable")
    assert "–" not in done.stdout and "found a difference" not in done.stdout


def test_null_cell_is_the_baseline_again(results):
    cells = cells_by_key(results)
    nulls = [row for row in cells.values() if row["verdict"] == "aa_test"]
    assert len(nulls) == 4
    for row in nulls:
        assert row["cell"] == next(c for c in cells if row["cell"].startswith(c)) + " aa_test"
        assert row["versus"] == row["variant"] == "contiguous"


# A length of one, an empty prefill, more steps than tokens, a ragged head size, GQA by 8.
def test_smallest_sizes(config, tmp_path):
    shape = {"model.q_heads": 8, "model.kv_heads": 1, "model.head_dim": 8}
    cells = cells_of(config, tmp_path / "out", {"sweep.seq_len": [1, 2], "sweep.batch": [1, 3], **shape})
    assert len({row["cell"] for row in cells}) == len(cells) == 2 * 2 * 2 * 7 and {row["status"] for row in cells} == {"ok"}
    assert {row["samples"] for row in cells if row["seq_len"] == "1"} == {str(REPETITIONS)}


def test_an_experiments_own_table_may_stay_when_it_is_not_run(config, tmp_path):
    text = config.read_text().replace('["decode", "growth"]', '"decode"') + "[growth]\nattend = false\n"
    (tmp_path / "one.toml").write_text(text)
    rows = cells_of(tmp_path / "one.toml", tmp_path / "out", {"sweep.seq_len": 8})
    assert {row["experiment"] for row in rows} == {"decode"}


def test_what_does_not_fit_is_left_out_and_said(config, tmp_path):
    huge = {"sweep.seq_len": [8, 1 << 24], "model.layers": 16, "measure.memory_share": 0.01}
    done = succeeded(run(config, tmp_path / "out", huge))
    for row in cells_by_key(tmp_path / "out").values():
        if row["seq_len"] == "8":
            assert row["status"] == "ok"
        else:
            assert row["status"] == "out_of_memory" and "needs" in row["reason"] and row["step_p50_us"] == ""
            assert f"{row['cell']}: out_of_memory: {row['reason']}" in done.stderr
    assert "out_of_memory" in done.stdout


def test_copies_that_attention_reads_are_planned_for(config, tmp_path):
    shape = {"model.q_heads": 8, "model.kv_heads": 1, "model.head_dim": 64, "sweep.seq_len": 1024, "measure.memory": '"5MiB"'}
    rows = cells_of(config, tmp_path / "out", {"sweep.variants": ["contiguous", "contiguous(read=repeat)"], **shape})
    held = 2 * 1024 * 64 * 4  # K and V; three of them, and copies for each of eight query heads
    copies = {"decode": 2, "growth": 1}  # decode also holds a fork
    for row in rows:
        assert row["status"] == ("out_of_memory" if "repeat" in row["variant"] else "ok"), row["reason"]
        if "repeat" in row["variant"]:
            needed = (3 + 8 * copies[row["experiment"]]) * held
            assert row["reason"].startswith(f"needs {needed / 2**20:.2f} MiB"), row["reason"]


def test_checkpoint_times_the_compaction_of_a_pool_with_a_gap(config, tmp_path):
    rows = cells_of(config, tmp_path / "out", {"experiment": "checkpoint", "sweep.seq_len": 26,
                                               "sweep.variants": ["contiguous", "paged(block=4,segment=4)"]})  # fmt: skip
    assert {row["status"] for row in rows} == {"ok"}, [row["reason"] for row in rows]
    contiguous, paged = (next(row for row in rows if row["variant"].startswith(name)) for name in ("contiguous", "paged"))
    assert contiguous["compact_p50_us"] == "" and paged["bytes_payload"] == contiguous["bytes_payload"]
    assert all(float(paged[f"compact_{name}"]) > 0 for name in ("p50_us", "moved_bytes", "freed_bytes"))


def test_growth_without_a_cache_holds_nothing_and_attends_anew(config, tmp_path):
    settings = {"sweep.variants": ["contiguous", "none"], "sweep.seq_len": 24, "experiment": "growth"}
    row = by_variant(cells_of(config, tmp_path / "out", settings))["no_cache"]
    assert row["status"] == "ok" and 0 < float(row["err_rel_l2"]) < 1e-5, row["reason"]
    assert row["bytes_payload"] == row["held_bytes_per_token"] == "0" and row["read_gbps"] == ""
    steps = [r for r in table(tmp_path / "out" / "growth.csv") if r["variant"] == "no_cache"]
    assert [int(r["token"]) for r in steps] == REPETITIONS * list(range(1, 25))
    assert all(float(r["append_us"]) > 0 and float(r["attend_us"]) > 0 and r["bytes_payload"] == "0" for r in steps)
    held = [int(r["bytes_workspace"]) for r in steps[:24]]
    assert held == sorted(held) and held[-1] - held[0] >= 23 * ROW_BYTES


def test_the_largest_sizes_of_all_do_not_fit(config, tmp_path):
    most = {"model.q_heads": 4096, "model.kv_heads": 4096, "model.head_dim": 512, "model.layers": 1024,
            "sweep.batch": 4096, "sweep.seq_len": 1 << 24}
    rows = unmeasured_cells(config, tmp_path / "out", most)
    assert len(rows) == 14 and {row["status"] for row in rows} == {"out_of_memory"}
    assert [name for name in ("samples.csv", "growth.csv") if (tmp_path / "out" / name).exists() and table(tmp_path / "out" / name)] == []


def test_drafts_are_shown_below_the_steps(config, tmp_path):
    drafted = {"experiment": "decode", "sweep.seq_len": 128, "measure.steps": 24, "measure.draft": 4, "measure.accept": 0.5,
               "sweep.variants": ["contiguous/f16", "contiguous/f16/ring(window=64)"]}  # fmt: skip
    full, ring = by_variant(cells_of(config, tmp_path / "out", drafted)).values()
    shown = " ".join(kvlab("summary", tmp_path / "out", "--table", "full").stdout.split())
    assert "4 drafts per step tokens that stay" in shown
    assert "no drafts with f16 ring 64: cannot truncate" in shown and "a full cache overwrites rows" in shown
    assert (full["draft_tokens"], full["draft_refused"]) == ("4", "") and 1 < float(full["draft_stays_mean"]) < 5
    token = float(full["draft_step_p50_us"]) / float(full["draft_stays_mean"])
    assert float(full["draft_ratio_p50"]) == pytest.approx(token / float(full["step_p50_us"]), rel=1e-6)
    assert ring["draft_step_p50_us"] == "" and ring["status"] == "ok"


def test_without_a_terminal_progress_is_plain_lines(config, tmp_path):
    done = run(config, tmp_path / "out", {"sweep.seq_len": 8})
    assert [re.sub(", about .*", "", line) for line in done.stderr.splitlines()] == [
        "[1/2] decode gaussian, batch 1, 8 tokens",
        "[2/2] growth gaussian, batch 1, 8 tokens",
    ]
    assert "\r" not in done.stdout and "\033" not in done.stdout


def test_a_terminal_gets_a_bar(config, tmp_path):
    master, slave = pty.openpty()
    child = start(config, tmp_path / "out", stderr=slave)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], TIMEOUT_S)[0]:
        try:
            shown += os.read(master, 4096)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert child.wait() == 0
    text = shown.decode()
    assert "░" in text and "█" in text and "\r\033[K" in text and re.search(r"about \d+:\d\d left", text)
    assert text.endswith("\r\033[K")  # gone before the summary
