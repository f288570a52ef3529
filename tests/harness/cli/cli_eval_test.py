"""`kvlab eval` and `run` on a user's own tensors, against FP64 by the formula."""

import json
import math
import os
import re
import struct
import sys

import numpy as np
import pytest
from program import (
    CONFIG, ENV, assert_refused, by_variant, cells_of, kvlab, no_file_beyond, run, skip_where_openmp_needs_a_file, succeeded, table,
    without_gpu,
)  # fmt: skip
from safetensors import deserialize

LAYERS, N = 2, 19


def encode(values, dtype):
    values = np.asarray(values, np.float32).ravel()
    if dtype == "BF16":  # the upper half of an f32
        return values.view(np.uint16)[1::2].tobytes()
    return values.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()


def decode(data, dtype):
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[dtype])


def write_tensors(path, tensors, dtype="F32"):
    header, data = {}, b""
    for name, values in tensors.items():
        payload = encode(values, dtype)
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    """In FP64."""
    return {name: decode(t["data"], t["dtype"]).reshape(t["shape"]).astype(np.float64) for name, t in deserialize(path.read_bytes())}


def make_dump(path, dtype, q_heads=4, kv_heads=2, dim=8):
    """Writes a random dump; returns FP64 attention over its values as rounded to the dtype."""
    draw = np.random.default_rng([len(dtype), q_heads, kv_heads])
    shapes = {name: [LAYERS, heads, N, dim] for name, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads))}
    write_tensors(path, {name: draw.standard_normal(shape) for name, shape in shapes.items()}, dtype)
    return causal_attention(**read_tensors(path))


def causal_attention(q, k, v):
    """FP64 by the formula: [layers, q_heads, tokens, head_dim]."""
    k, v = (rows.repeat(q.shape[1] // rows.shape[1], axis=1) for rows in (k, v))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    scores[:, :, ~np.tri(q.shape[2], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    return weights @ v / weights.sum(axis=3, keepdims=True)


def checked_tokens(prompt):
    """Up to 16, spread evenly over those that end a step."""
    first = max(prompt, 1) - 1
    count = min(16, N - first)
    return [first + i * (N - first) // count - 1 for i in range(1, count + 1)]


def relative_l2(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def evaluate(dump, out, variants, *args, **options):
    return kvlab("eval", dump, "--variants", variants, "--out", out, *args, **options)


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "dump.safetensors"
    make_dump(path, "F32")
    return path


@pytest.fixture(scope="module")
def evaluated(dump):
    """FP64 attention over the dump, and the folder of a run over it."""
    layered = "contiguous/token(bits=4) + 0:contiguous;contiguous/token(bits=4)"
    succeeded(evaluate(dump, dump.parent / "out", "contiguous;contiguous/token;contiguous/ring(window=5);" + layered))
    return causal_attention(**read_tensors(dump)), dump.parent / "out"


GQA, MHA, MQA = (4, 2, 8), (3, 3, 8), (6, 1, 16)  # heads of Q, of K and V, and head_dim


@pytest.mark.parametrize("dtype, prompt, shape", [
    *(("F32", prompt, GQA) for prompt in (0, 1, 7, N)), ("F16", 5, GQA), ("BF16", 5, GQA), ("F32", 4, MHA), ("F32", 4, MQA),
])
def test_eval_agrees_with_an_independent_fp64(tmp_path, dtype, prompt, shape):
    want = make_dump(tmp_path / "dump.safetensors", dtype, *shape)
    q_heads, kv_heads, dim = shape
    specs = "concat/f32 ; contiguous;doubling;doubling(read=copy); contiguous/f16"
    succeeded(evaluate(tmp_path / "dump.safetensors", tmp_path / "out", specs, "--prompt", prompt))
    outputs = read_tensors(tmp_path / "out" / "outputs.safetensors")
    cells = by_variant(table(tmp_path / "out" / "cells.csv"))
    assert set(outputs) == set(cells) == {"concat", "contiguous", "doubling", "doubling(read=copy)", "contiguous/f16"}
    for spec, got in outputs.items():
        assert got.shape == (LAYERS, q_heads, N, dim)
        error = relative_l2(got, want)
        # A dump in 16 bits is exact in f16 if it was f16, and nearly so if it was bf16.
        assert error < 1e-5 or (spec == "contiguous/f16" and dtype == "F32" and error < 1e-3)
        row = cells[spec]
        assert row["status"] == "ok"
        assert [int(row[c]) for c in ("layers", "q_heads", "kv_heads", "head_dim", "seq_len")] == [LAYERS, *shape, N]
        checked = checked_tokens(prompt)
        mean = np.mean([relative_l2(got[:, :, t], want[:, :, t]) for t in checked])
        assert float(row["err_rel_l2"]) == pytest.approx(mean, rel=1e-3, abs=1e-9) and int(row["err_positions"]) == len(checked)
        assert int(row["bytes_payload"]) == LAYERS * 2 * kv_heads * N * dim * (2 if "f16" in spec else 4)


def test_eval_writes_the_error_of_every_head(evaluated):
    want, out = evaluated
    heads, cells = table(out / "heads.csv"), by_variant(table(out / "cells.csv"))
    assert [(row["layer"], row["q_head"]) for row in heads] == [(str(i), str(h)) for i in range(LAYERS) for h in range(4)] * len(cells)
    outputs = read_tensors(out / "outputs.safetensors")
    for variant, cause in (("contiguous/token", "codec"), ("contiguous/ring(window=5)", "retention")):
        errors = []
        # The one cause accounts for the whole error, since both are of the same tokens.
        assert float(cells[variant][f"err_{cause}_rel_l2"]) == pytest.approx(float(cells[variant]["err_rel_l2"]), rel=1e-3)
        for row in (row for row in heads if row["variant"] == variant):
            got, right = (rows[int(row["layer"]), int(row["q_head"]), checked_tokens(0)] for rows in (outputs[variant], want))
            errors.append(float(row["err_rel_l2"]))
            assert errors[-1] == pytest.approx(relative_l2(got, right), rel=1e-3)
            assert float(row["err_max_abs"]) == pytest.approx(abs(got - right).max(), rel=1e-3)
        assert min(errors) < float(cells[variant]["err_rel_l2"]) < max(errors)


def test_eval_takes_specs_of_layers(evaluated, dump, tmp_path):
    want, out = evaluated
    outputs = read_tensors(out / "outputs.safetensors")
    layered, alike = (outputs[spec] for spec in ("contiguous/token(bits=4) + 0:contiguous", "contiguous/token(bits=4)"))
    assert relative_l2(layered[0], want[0]) < 1e-5 < 1e-3 < relative_l2(alike[0], want[0])
    assert (layered[1] == alike[1]).all()
    assert {row["status"] for row in table(out / "cells.csv")} == {"ok"}
    assert_refused(evaluate(dump, tmp_path / "no", f"contiguous + {LAYERS}:concat"), f"there is no layer {LAYERS}", lines=3)


def test_eval_draws_its_report_and_keeps_its_results_where_that_fails(dump, tmp_path):
    def draw(out, python, *args):
        return evaluate(dump, tmp_path / out, "contiguous;contiguous/f16", *args, env={**ENV, "KVLAB_PYTHON": python})

    drawn = succeeded(draw("drawn", sys.executable))
    report = (tmp_path / "drawn" / "report.html").read_text()
    assert '"eval_error"' in report and (tmp_path / "drawn" / "figures" / "eval_heads.svg").exists()
    failed = draw("failed", "/bin/false")
    assert failed.returncode == 1 and not (tmp_path / "failed" / "report.html").exists()
    plain = succeeded(draw("plain", "/bin/false", "--no-plots"))
    without = lambda text: re.sub("(drawn|failed|plain)", "", text).split("results:")[0]
    assert without(failed.stdout) == without(plain.stdout) == without(drawn.stdout)
    for name in ("cells.csv", "heads.csv", "outputs.safetensors"):
        assert all((tmp_path / out / name).stat().st_size > 0 for out in ("drawn", "failed", "plain")), name


def test_eval_of_a_prompt_that_is_cut_at_the_dumps_end(evaluated, dump, tmp_path):
    """Its last query saw all tokens, of which the cache has only four left."""
    snapkv = "snapkv(budget=4,window=2)"
    succeeded(evaluate(dump, tmp_path / "out", f"contiguous/{snapkv};paged/f16/{snapkv}", "--prompt", N))
    outputs = read_tensors(tmp_path / "out" / "outputs.safetensors")
    exact, rounded = table(tmp_path / "out" / "cells.csv")
    for row in (exact, rounded):
        assert row["status"] == "ok", row["reason"]
        assert float(row["err_retention_rel_l2"]) == 0 < float(row["err_kernel_rel_l2"]) < 1e-5
        assert float(row["err_rel_l2"]) == pytest.approx(
            relative_l2(outputs[row["variant"]][:, :, -1], evaluated[0][:, :, -1]), rel=1e-3, abs=1e-9)
        assert int(row["bytes_payload"]) == LAYERS * 2 * 2 * 4 * 8 * (2 if "f16" in row["variant"] else 4)
    assert float(exact["err_codec_rel_l2"]) == 0 and 1e-5 < float(rounded["err_codec_rel_l2"]) < 1e-3


def test_eval_says_what_the_dump_is_too_short_for(tmp_path):
    dump = tmp_path / "example.safetensors"  # of 256 tokens
    succeeded(kvlab("eval", "--example", dump))
    variants = ["contiguous/q8_0", "contiguous/kivi(bits=2)", "contiguous/kivi(bits=2,residual=0)"]
    for context, verdicts in ((None, ["", "untested", "untested"]), ("256", ["", "", ""])):
        asked = ("--context", context) if context else ()
        done = succeeded(kvlab("eval", dump, "--variants", ";".join(variants), "--out", tmp_path / f"to {context}", "--no-plots", *asked))
        cells = by_variant(table(tmp_path / f"to {context}" / "cells.csv"))
        assert [cells[variant]["verdict"] for variant in variants] == verdicts
        assert ("not put to the test at 256 tokens: 11 % of its tokens were encoded, at 8,192 tokens 91 %" in " ".join(done.stdout.split())) == (not context)
    errors = [float(cells[variant]["err_rel_l2"]) for variant in variants]
    assert errors[0] < errors[1] < errors[2]


def write_with_one_value(path, tokens, name, value):
    """A dump of halves, and in a tensor of K or V this value of token 2."""
    tensors = {other: np.full((1, heads, tokens, 8), 0.5) for other, heads in (("q", 2), ("k", 1), ("v", 1))}
    tensors[name][0, 0, 2, 4] = value
    write_tensors(path, tensors)


@pytest.mark.parametrize("value", [65519.0, 65520.0, -70000.0])
def test_a_value_beyond_a_codecs_range_is_named(tmp_path, value):
    write_with_one_value(tmp_path / "dump", 3, "v", value)
    held = ["contiguous", "contiguous/bf16"]
    lost = ["contiguous/f16", "contiguous/kivi(bits=2)", "paged/f16/ring(window=2)"]
    done = evaluate(tmp_path / "dump", tmp_path / "out", ";".join(held + lost))
    assert done.returncode == (0 if abs(value) < 65520 else 1), done.stderr
    reasons = {row["variant"]: (row["status"], row["reason"]) for row in table(tmp_path / "out" / "cells.csv")}
    ok, failed = ("ok", ""), ("failed", f"V of token 2 reaches {abs(value):.0f}, but f16 holds only magnitudes below 65520 "
                              "(layer 0, kv head 0)")  # fmt: skip
    assert {reasons[variant] for variant in held} == {ok}
    assert {reasons[variant] for variant in lost} == {ok if abs(value) < 65520 else failed}, reasons
    assert done.stderr.count(failed[1]) == (0 if abs(value) < 65520 else len(lost)), done.stderr


def test_a_value_that_the_residual_buffer_lost_is_named_once_it_is_encoded(tmp_path):
    write_with_one_value(tmp_path / "dump", 9, "k", 1e5)
    done = evaluate(tmp_path / "dump", tmp_path / "out", "contiguous/kivi(bits=2,residual=0,group=8)", "--prompt", 9)
    assert done.returncode == 1
    assert "K of token 2 reaches 100000, but f16, the residual buffer, holds only magnitudes below 65520" in done.stderr


@without_gpu
def test_eval_on_a_gpu_that_is_not_there_is_refused(dump, tmp_path):
    assert_refused(evaluate(dump, tmp_path / "out", "concat", "--device", "cuda"), "no GPU can be used", out=tmp_path / "out")


@pytest.mark.parametrize("size", [0, 500, 2000])
def test_eval_on_a_full_disk_leaves_nothing(dump, tmp_path, size):
    done = evaluate(dump, tmp_path / "out", "concat", preexec_fn=no_file_beyond(size))
    skip_where_openmp_needs_a_file(done)
    assert_refused(done, "cannot write", out=tmp_path / "out")


def test_eval_overwrites_nothing(evaluated, dump):
    cells = evaluated[1] / "cells.csv"
    before = cells.read_bytes()
    assert_refused(evaluate(dump, evaluated[1], "concat"), "already holds results; choose another folder")
    assert cells.read_bytes() == before


# A dump is a workload of `run`, too.
def test_run_on_a_dump(config, tmp_path):
    make_dump(tmp_path / "dump", "F16", q_heads=8, kv_heads=4)
    for row in cells_of(config, tmp_path / "out", {"workload.dump": tmp_path / "dump", "sweep.seq_len": [N, 20]}):
        assert (row["workload"], row["layers"], row["q_heads"], row["kv_heads"]) == ("dump", "2", "8", "4")
        if row["seq_len"] == "20":
            assert (row["status"], row["reason"]) == ("unsupported", f"workload 'dump' has only {N} tokens")
        else:
            assert row["status"] == "ok" and float(row["err_rel_l2"]) < 1e-5  # f16 values are exact in f16


def test_a_path_that_is_no_utf8_loses_no_results(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    make_dump(folder / "d", "F32")
    assert evaluate(folder / "d", folder / "out", "concat", text=False).returncode == 0
    assert [row["status"] for row in table(folder / "out" / "cells.csv")] == ["ok"]
    assert json.loads((folder / "out" / "env.json").read_text())["config"]["path"].endswith("caf\ufffd/d")
    config = folder / os.fsdecode(b"\xff.toml")
    config.write_text(CONFIG)
    assert run(config, folder / "run", {"sweep.seq_len": 8, "experiment": "decode"}, text=False).returncode == 0
    assert json.loads((folder / "run" / "env.json").read_text())["config"]["name"] == "\ufffd"
    for out in ("out", "run"):
        (folder / out / "config.toml").read_text(encoding="utf-8")
