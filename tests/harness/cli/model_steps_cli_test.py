"""The model experiment through the program: its numbers recomputed from its samples, and what it refuses."""

import json

import pytest
from program import HOME, assert_refused, cells_of, run, succeeded, table, unmeasured_cells
from recomputed import EXACT, assert_recomputed, samples_of, values

GEOMETRY = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 50, "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
}  # fmt: skip
PRODUCTS = 2 * (64 * 16 * (4 + 2 + 2 + 4) + 3 * 64 * 96) + 50 * 64  # values of the matrices of a step
PARTS = ("append", "view", "attend", "projections", "rest")
HYBRID = GEOMETRY | {
    "model_type": "qwen3_next", "num_hidden_layers": 4, "full_attention_interval": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 8, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
}  # fmt: skip
REPETITIONS, STEPS, TOKENS, BATCH = 5, 3, 64, 2


@pytest.fixture(scope="module")
def geometry(tmp_path_factory):
    path = tmp_path_factory.mktemp("geometry") / "config.json"
    path.write_text(json.dumps(GEOMETRY))
    return path


@pytest.fixture(scope="module")
def random_config(geometry):
    path = geometry.parent / "random.toml"
    path.write_text(f"""
experiment = "model"
threads = 2
workload = {{ weights = "random" }}
model = {{ config = "{geometry}" }}
measure = {{ context = "synthetic", repetitions = {REPETITIONS}, steps = {STEPS}, retries = 0 }}
[sweep]
variants = ["contiguous/f16", "contiguous/kivi(bits=2,group=8,residual=8)", "doubling(read=copy)", "concat/f16", "contiguous/ring(window=16)"]
seq_len = {TOKENS}
batch = {BATCH}
""")
    return path


@pytest.fixture(scope="module")
def results(random_config):
    folder = random_config.parent / "run"
    done = succeeded(run(random_config, folder))
    return table(folder / "cells.csv"), samples_of(folder), done.stdout


def number(row, column):
    return float(row[column])


def test_rates_and_shares_are_those_of_the_times(results):
    cells, samples, _ = results
    assert [row["verdict"] for row in cells[:2]] == ["baseline", "aa_test"] and len(cells) == 6
    for row in cells:
        assert row["status"] == "ok", row["reason"]
        assert [len(rows) for rows in samples[row["cell"], "step"].values()] == [STEPS] * REPETITIONS
        assert min(map(min, values(samples[row["cell"], "step"], "rest_us"))) > 0
        for rate, step in (("tokens_per_s", "step_p50_us"), ("tokens_per_s_ci_low", "step_ci_high_us"), ("tokens_per_s_ci_high", "step_ci_low_us")):
            assert number(row, rate) == EXACT(BATCH / number(row, step) * 1e6, rel=1e-6)
        cache = sum(number(row, f"{part}_p50_us") for part in PARTS[:3])
        assert number(row, "cache_share") == EXACT(cache / number(row, "step_p50_us"), rel=1e-7)


def test_bytes_are_those_of_the_geometry(results):
    cells, _, _ = results
    for row in cells:
        assert (row["weights"], row["weights_type"], row["context"]) == ("random", "bf16", "synthetic")
        assert number(row, "weight_bytes_per_token") == PRODUCTS * 2 / BATCH
        assert row["layers"] == "2" and row["prefill_p50_us"] == ""
    rows = {row["variant"]: row for row in cells}
    values = 2 * 2 * 2 * 16  # values a token: K and V of two layers and heads
    assert number(rows["contiguous/f16"], "cache_bytes_per_token") == values * 2 * TOKENS
    assert number(rows["doubling(read=copy)"], "cache_bytes_per_token") == values * 4 * TOKENS
    assert number(rows["contiguous/ring(window=16)"], "cache_bytes_per_token") == values * 4 * 16
    assert rows["contiguous/ring(window=16)"]["eviction_check"] == "fp64"
    # Every timed step, and the one that is verified, copies all rows of the step before, or of its own.
    steps = range(TOKENS - STEPS * REPETITIONS - 1, TOKENS)
    assert number(rows["concat/f16"], "bytes_copied") == sum(values * 2 * tokens * BATCH for tokens in steps)
    assert number(rows["contiguous/f16"], "bytes_copied") == 0
    held = lambda row: sum(number(row, f"bytes_{kind}") for kind in ("payload", "metadata", "slack"))  # noqa: E731
    assert all(held(row) == number(row, "bytes_predicted") for row in cells)


def test_the_roofline_is_that_of_the_measured_rates(results):
    cells, _, stdout = results
    for row in cells:
        weights = number(row, "weight_bytes_per_token") * BATCH
        gbps = weights / number(row, "projections_p50_us") / 1e3
        assert number(row, "projections_gbps") == EXACT(gbps, rel=1e-6)
        assert number(row, "projections_share") == EXACT(gbps / number(row, "weights_gbps"), rel=1e-6)
        read = weights / number(row, "weights_gbps") / 1e3
        assert number(row, "weights_bound_us") >= read * (1 - 1e-6)
        bound = number(row, "weights_bound_us") + number(row, "bound_us")
        assert number(row, "step_bound_us") == EXACT(bound, rel=1e-6)
        assert number(row, "step_bound_share") == EXACT(bound / number(row, "step_p50_us"), rel=1e-6)
    assert "The cache takes half of a step: " in stdout


def test_a_models_own_weights_read_their_prompt(tmp_path):
    """The one that comes along, in f32: the prompt's time is apart."""
    cells = cells_of(HOME / "configs/model_small.toml", tmp_path / "out", {
        "sweep.seq_len": 96, "sweep.batch": 2, "sweep.variants": ["contiguous/f16", "contiguous/h2o(heavy=16,recent=16)"],
        "measure.steps": 4})  # fmt: skip
    samples = samples_of(tmp_path / "out")
    for row in cells:
        assert row["status"] == "ok", row["reason"]
        assert (row["weights"], row["weights_type"], row["context"]) == ("file", "f32", "prefill")
        assert [sum(map(len, samples[row["cell"], kind].values())) for kind in ("prefill", "step")] == [5, 20]
        context = 96 - 4 * 5 - 1
        assert number(row, "prefill_tokens_per_s") == EXACT(2 * context / number(row, "prefill_p50_us") * 1e6, rel=1e-6)


@pytest.mark.parametrize("context", ["synthetic", "prefill"])
def test_linear_layers_keep_a_state_that_is_counted_timed_and_checked(random_config, tmp_path, context):
    geometry = tmp_path / "hybrid.json"
    geometry.write_text(json.dumps(HYBRID))
    cells = cells_of(random_config, tmp_path / "out", {
        "model.config": geometry, "measure.context": context, "sweep.variants": ["contiguous/f16", "concat", "none"]})  # fmt: skip
    assert [row["variant"] for row in cells] == ["contiguous/f16", "contiguous/f16", "concat", "no_cache"]
    assert "state_us" in table(tmp_path / "out" / "samples.csv")[0] and assert_recomputed(tmp_path / "out")[0] == len(cells)
    for row in cells:
        assert row["status"] == "ok", row["reason"]
        assert row["layers"] == "4" and number(row, "state_p50_us") > 0
        assert 0 < number(row, "err_state_rel_l2") < 1e-5
        bound = number(row, "weights_bound_us") + number(row, "bound_us")
        if row["variant"] == "no_cache":
            assert row["bytes_state"] == "" and number(row, "bytes_payload") == 0
            continue
        states = 3 * 4 * 8 * 8 * 4 * BATCH
        assert number(row, "bytes_state") == states
        rows = 2 * 2 * 16 * TOKENS * BATCH * (2 if row["variant"] == "contiguous/f16" else 4)
        assert number(row, "bytes_payload") == rows + states == number(row, "bytes_predicted")
        assert number(row, "state_bound_us") == EXACT(states / number(row, "weights_gbps") / 1e3, rel=1e-6)
        assert number(row, "step_bound_us") == EXACT(bound + number(row, "state_bound_us"), rel=1e-6)


def test_without_a_cache_every_step_runs_all_tokens_again(random_config, tmp_path):
    done = succeeded(run(random_config, tmp_path / "out", {"sweep.variants": ["contiguous/f16", "none"]}))
    cached, _, bare = table(tmp_path / "out" / "cells.csv")
    assert (bare["variant"], bare["status"], bare["context"]) == ("no_cache", "ok", "prefill"), bare["reason"]
    assert bare["cell"].endswith(f"s{TOKENS} no_cache") and bare["versus"] == "contiguous/f16"
    assert number(bare, "err_rel_l2") < 1e-5 and number(bare, "err_kernel_rel_l2") < 1e-5 and bare["cache_share"] == ""
    # Ids alone are held; each step multiplies all tokens, and the newest with the classifier.
    held = ("bytes_payload", "bytes_metadata", "bytes_slack", "bytes_predicted")
    assert [number(bare, column) for column in held] == [0, TOKENS * BATCH * 4, 0, TOKENS * BATCH * 4]
    classifier = 50 * 64
    assert number(cached, "projection_multiply_adds") == PRODUCTS * BATCH
    last = (PRODUCTS - classifier) * TOKENS + classifier
    assert number(bare, "projection_multiply_adds") == last * BATCH
    pairs = TOKENS * (TOKENS + 1) // 2
    assert number(bare, "multiply_adds") == 2 * 2 * 4 * 16 * pairs * BATCH
    assert number(bare, "ratio_p50") > 1 and number(bare, "bytes_workspace_peak") > 0
    assert "no_cache" in done.stdout


def test_what_does_not_fit_is_told_with_both_numbers(random_config, geometry, tmp_path):
    huge = geometry.parent / "huge.json"
    huge.write_text(json.dumps({**GEOMETRY, "num_hidden_layers": 9000, "hidden_size": 65536}))
    done = run(random_config, tmp_path / "out", {"model.config": huge})
    assert_refused(done, "its weights take", "are available", out=tmp_path / "out")
    large = {"sweep.seq_len": "16M", "sweep.batch": 4096, "sweep.variants": "contiguous/f16"}
    rows = unmeasured_cells(random_config, tmp_path / "out", large)
    assert {row["status"] for row in rows} == {"out_of_memory"} and "the run may use" in rows[0]["reason"]


def test_few_repetitions_have_no_interval(random_config, tmp_path):
    for row in cells_of(random_config, tmp_path / "out", {"measure.repetitions": 3}):
        assert float(row["tokens_per_s"]) > 0 and float(row["step_p50_us"]) > 0
        assert row["tokens_per_s_ci_low"] == row["tokens_per_s_ci_high"] == row["step_ci_low_us"] == ""


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "gpt2", "qwen3"])
def test_families_are_verified_with_their_caps_sinks_and_windows(family, random_config, tmp_path):
    case = json.loads((HOME / "tests/harness/model/families/cases.json").read_text())[family]
    (tmp_path / "config.json").write_text(json.dumps(case["config"]))
    rows = cells_of(random_config, tmp_path / "run", {
        "model.config": tmp_path / "config.json", "measure.repetitions": 2, "measure.steps": 2, "sweep.batch": 1,
        "sweep.variants": ["contiguous", "contiguous/f16"], "sweep.seq_len": 24})  # fmt: skip
    assert [row["status"] for row in rows] == ["ok"] * 3, [row["reason"] for row in rows]
    error = {row["variant"]: number(row, "err_rel_l2") for row in rows}
    assert 0 < error["contiguous"] < 1e-5 < error["contiguous/f16"] < 1e-2
