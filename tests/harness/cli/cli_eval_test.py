"""`kvlab eval` and `run` on a user's own tensors, against FP64 by the formula."""

import csv
import json
import math
import random
import re
import struct
import sys
import time

import pytest
from program import ENV, assert_refused, cells_by_key, kvlab, no_file_beyond, run, skip_where_openmp_needs_a_file, table, without_gpu

PACK = {"F32": "f", "F16": "e"}


def encode(values, dtype):
    if dtype == "BF16":  # the upper half of an f32
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{PACK[dtype]}", *values)


def decode(data, dtype):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(PACK[dtype])}{PACK[dtype]}", data))


def write_tensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, payload) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    return {name: (t["shape"], decode(data[slice(*t["data_offsets"])], t["dtype"])) for name, t in header.items()
            if name != "__metadata__"}


LAYERS, N = 2, 19


def make_dump(path, dtype, q_heads=4, kv_heads=2, dim=8, n=N):
    """Writes a random dump; returns what its values are once rounded to the dtype."""
    draw = random.Random(f"{dtype} {q_heads} {kv_heads}")
    tensors, values = {}, {}
    for name, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads)):
        data = encode([draw.gauss(0, 1) for _ in range(LAYERS * heads * n * dim)], dtype)
        tensors[name] = (dtype, [LAYERS, heads, n, dim], data)
        values[name] = decode(data, dtype)
    write_tensors(path, tensors)
    return values


def causal_attention(values, q_heads=4, kv_heads=2, dim=8, n=N):
    """FP64 by the formula, one query at a time: [layers, q_heads, n, dim]."""
    def row(name, heads, layer, head, token):
        at = ((layer * heads + head) * n + token) * dim
        return values[name][at : at + dim]

    out = []
    for layer in range(LAYERS):
        for head in range(q_heads):
            kv = head // (q_heads // kv_heads)
            for token in range(n):
                q = row("q", q_heads, layer, head, token)
                scores = [math.fsum(a * b for a, b in zip(q, row("k", kv_heads, layer, kv, t))) / math.sqrt(dim)
                          for t in range(token + 1)]
                weights = [math.exp(s - max(scores)) for s in scores]
                rows = [row("v", kv_heads, layer, kv, t) for t in range(token + 1)]
                out += [math.fsum(w * r[c] for w, r in zip(weights, rows)) / math.fsum(weights) for c in range(dim)]
    return out


def relative_l2(got, want):
    difference = math.fsum((a - b) ** 2 for a, b in zip(got, want, strict=True))
    return math.sqrt(difference / math.fsum(b * b for b in want))


@pytest.mark.parametrize("dtype, prompt", [("F32", 0), ("F32", 1), ("F32", 7), ("F32", N), ("F16", 5), ("BF16", 5)])
def test_eval_agrees_with_an_independent_fp64(tmp_path, dtype, prompt):
    values = make_dump(tmp_path / "dump.safetensors", dtype)
    specs = "concat/f32 ; contiguous;doubling(read=copy); contiguous/f16"
    done = kvlab("eval", tmp_path / "dump.safetensors", "--variants", specs, "--prompt", prompt, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    want = causal_attention(values)
    outputs = read_tensors(tmp_path / "out" / "outputs.safetensors")
    cells = {row["variant"]: row for row in table(tmp_path / "out" / "cells.csv")}
    assert set(outputs) == set(cells) == {"concat", "contiguous", "doubling(read=copy)", "contiguous/f16"}
    for spec, (shape, got) in outputs.items():
        assert shape == [LAYERS, 4, N, 8]
        error = relative_l2(got, want)
        # A dump in 16 bits is exact in f16 where it was f16, and nearly so where it was bf16.
        assert error < 1e-5 or (spec == "contiguous/f16" and dtype == "F32" and error < 1e-3)
        row = cells[spec]
        assert row["status"] == "ok" and [row[c] for c in ("layers", "q_heads", "kv_heads", "head_dim", "seq_len")] == [
            str(LAYERS), "4", "2", "8", str(N)]
        assert float(row["err_rel_l2"]) == pytest.approx(error, rel=1e-3, abs=1e-12)
        assert int(row["bytes_payload"]) == LAYERS * 2 * 2 * N * 8 * (2 if "f16" in spec else 4)


def test_eval_writes_the_error_of_every_head(tmp_path):
    values = make_dump(tmp_path / "dump", "F32")
    done = kvlab("eval", tmp_path / "dump", "--variants", "contiguous/token(bits=8);contiguous/ring(window=5)", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    want, size = causal_attention(values), N * 8
    heads = table(tmp_path / "out" / "heads.csv")
    assert [(row["layer"], row["q_head"]) for row in heads] == [(str(i), str(h)) for i in range(LAYERS) for h in range(4)] * 2
    for variant, (_, got) in read_tensors(tmp_path / "out" / "outputs.safetensors").items():
        rows = [row for row in heads if row["variant"] == variant]
        for index, row in enumerate(rows):
            part = slice(index * size, (index + 1) * size)
            assert float(row["err_rel_l2"]) == pytest.approx(relative_l2(got[part], want[part]), rel=1e-3)
            largest = max(abs(a - b) for a, b in zip(got[part], want[part]))
            assert float(row["err_max_abs"]) == pytest.approx(largest, rel=1e-3)
        (cell,) = (row for row in table(tmp_path / "out" / "cells.csv") if row["variant"] == variant)
        assert min(float(row["err_rel_l2"]) for row in rows) < float(cell["err_rel_l2"]) < max(float(row["err_rel_l2"]) for row in rows)


def test_eval_takes_specs_of_layers(tmp_path):
    values = make_dump(tmp_path / "dump", "F32")
    variants = "contiguous/token(bits=4) + 0:contiguous;contiguous/token(bits=4)"
    done = kvlab("eval", tmp_path / "dump", "--variants", variants, "--no-plots", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    want, outputs = causal_attention(values), read_tensors(tmp_path / "out" / "outputs.safetensors")
    first = slice(0, 4 * N * 8)
    layered, alike = (got for _, got in (outputs["contiguous/token(bits=4) + 0:contiguous"], outputs["contiguous/token(bits=4)"]))
    assert relative_l2(layered[first], want[first]) < 1e-5 < 1e-3 < relative_l2(alike[first], want[first])
    assert layered[4 * N * 8 :] == alike[4 * N * 8 :]
    rows = {row["variant"]: row for row in table(tmp_path / "out" / "cells.csv")}
    assert {row["status"] for row in rows.values()} == {"ok"}
    refused = kvlab("eval", tmp_path / "dump", "--variants", f"contiguous + {LAYERS}:concat", "--out", tmp_path / "no")
    assert_refused(refused, f"there is no layer {LAYERS}", lines=3)


def test_eval_draws_its_report_and_keeps_its_results_where_that_fails(tmp_path):
    make_dump(tmp_path / "dump", "F32")
    command = ["eval", tmp_path / "dump", "--variants", "contiguous;contiguous/f16"]
    drawn = kvlab(*command, "--out", tmp_path / "drawn", env={**ENV, "KVLAB_PYTHON": sys.executable})
    assert drawn.returncode == 0, drawn.stderr
    report = (tmp_path / "drawn" / "report.html").read_text()
    assert '"eval_error"' in report and (tmp_path / "drawn" / "figures" / "eval_heads.svg").exists()
    failed = kvlab(*command, "--out", tmp_path / "failed", env={**ENV, "KVLAB_PYTHON": "/bin/false"})
    assert failed.returncode == 1 and not (tmp_path / "failed" / "report.html").exists()
    plain = kvlab(*command, "--no-plots", "--out", tmp_path / "plain", env={**ENV, "KVLAB_PYTHON": "/bin/false"})
    assert plain.returncode == 0
    without = lambda text: re.sub("(drawn|failed|plain)", "", text).split("results:")[0]
    assert without(failed.stdout) == without(plain.stdout) == without(drawn.stdout)
    for name in ("cells.csv", "heads.csv", "outputs.safetensors"):
        same = {(tmp_path / out / name).exists() and (tmp_path / out / name).stat().st_size > 0 for out in ("drawn", "failed", "plain")}
        assert same == {True}, name


def test_eval_of_a_prompt_that_is_cut_at_the_dumps_end(tmp_path):
    """Its last query saw all tokens, of which the cache has only four left."""
    values = make_dump(tmp_path / "dump", "F32")
    done = kvlab("eval", tmp_path / "dump", "--variants", "contiguous/snapkv(budget=4,window=2);paged/f16/snapkv(budget=4,window=2)",
                 "--prompt", N, "--out", tmp_path / "out")  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs = read_tensors(tmp_path / "out" / "outputs.safetensors")
    exact, rounded = table(tmp_path / "out" / "cells.csv")
    for row in (exact, rounded):
        assert row["status"] == "ok", row["reason"]
        assert float(row["err_retention_rel_l2"]) == 0 < float(row["err_kernel_rel_l2"]) < 1e-5
        assert float(row["err_rel_l2"]) == pytest.approx(
            relative_l2(outputs[row["variant"]][1], causal_attention(values)), rel=1e-3, abs=1e-12)
        assert int(row["bytes_payload"]) == LAYERS * 2 * 2 * 4 * 8 * (2 if "f16" in row["variant"] else 4)
    assert float(exact["err_codec_rel_l2"]) == 0 and 1e-5 < float(rounded["err_codec_rel_l2"]) < 1e-3


@pytest.mark.parametrize("q_heads, kv_heads, dim", [(3, 3, 8), (6, 1, 16)])
def test_eval_of_mha_and_mqa(tmp_path, q_heads, kv_heads, dim):
    values = make_dump(tmp_path / "d", "F32", q_heads, kv_heads, dim)
    assert kvlab("eval", tmp_path / "d", "--variants", "doubling", "--prompt", "4", "--out", tmp_path / "o").returncode == 0
    shape, got = read_tensors(tmp_path / "o" / "outputs.safetensors")["doubling"]
    assert shape == [LAYERS, q_heads, N, dim]
    assert relative_l2(got, causal_attention(values, q_heads, kv_heads, dim)) < 1e-5


def good_tensors(**changes):
    shapes = {"q": [1, 2, 3, 8], "k": [1, 1, 3, 8], "v": [1, 1, 3, 8], **changes}
    return {n: ("F32", s, encode([0.5] * math.prod(s), "F32")) for n, s in shapes.items() if s}


def one_value(value):
    tensors = good_tensors()
    tensors["v"] = ("F32", [1, 1, 3, 8], encode([0.5] * 20 + [value] + [0.5] * 3, "F32"))
    return tensors


@pytest.mark.parametrize("value", [65519.0, 65520.0, -70000.0])
def test_a_value_beyond_a_codecs_range_is_named(tmp_path, value):
    write_tensors(tmp_path / "dump", one_value(value))
    held = ["contiguous", "contiguous/bf16"]
    lost = ["contiguous/f16", "contiguous/kivi(bits=2)", "paged/f16/ring(window=2)"]
    done = kvlab("eval", tmp_path / "dump", "--variants", ";".join(held + lost), "--out", tmp_path / "out")
    assert done.returncode == (0 if abs(value) < 65520 else 1), done.stderr
    reasons = {row["variant"]: (row["status"], row["reason"]) for row in table(tmp_path / "out" / "cells.csv")}
    ok, failed = ("ok", ""), ("failed", f"V of token 2 reaches {abs(value):.0f}, but f16 holds only magnitudes below 65520 "
                              "(layer 0, kv head 0)")  # fmt: skip
    assert {reasons[variant] for variant in held} == {ok}
    assert {reasons[variant] for variant in lost} == {ok if abs(value) < 65520 else failed}, reasons
    assert done.stderr.count(failed[1]) == (0 if abs(value) < 65520 else len(lost)), done.stderr


def test_a_value_that_the_residual_buffer_lost_is_named_once_it_is_encoded(tmp_path):
    tensors = good_tensors(q=[1, 2, 9, 8], k=[1, 1, 9, 8], v=[1, 1, 9, 8])
    tensors["k"] = ("F32", [1, 1, 9, 8], encode([0.5] * 20 + [1e5] + [0.5] * 51, "F32"))
    write_tensors(tmp_path / "dump", tensors)
    done = kvlab("eval", tmp_path / "dump", "--variants", "contiguous/kivi(bits=2,residual=0,group=8)", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "K of token 2 reaches 100000, but f16, the residual buffer, holds only magnitudes below 65520" in done.stderr


def raw_file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def lying(**changes):
    """A header of three tensors in 192 + 96 + 96 bytes, with one thing changed in q."""
    header = {name: {"dtype": "F32", "shape": [1, heads, 3, 8], "data_offsets": [at, at + heads * 96]}
              for name, heads, at in (("q", 2, 0), ("k", 1, 192), ("v", 1, 288))}
    header["q"].update(changes)
    return raw_file(header, bytes(384))


@pytest.mark.parametrize(
    "make, parts",
    [
        (lambda: b"", ["dump"]),
        (lambda: b"short", ["dump"]),
        (lambda: struct.pack("<Q", 1 << 60) + b"{}", ["header"]),
        (lambda: raw_file(b"{not json"), ["header"]),
        (lambda: raw_file(b"[" * 100000), ["header"]),
        (lambda: raw_file({}), ["has no tensor", "q"]),
        (lambda: lying(data_offsets=[0, 10**9]), ["q"]),
        (lambda: lying(data_offsets=[192, 0]), ["q"]),
        (lambda: lying(data_offsets=[-8, 184]), ["q"]),
        (lambda: lying(shape=[1, 2, 3, 1 << 62]), ["q"]),
        (lambda: lying(shape=[1, 2, 3, -8]), ["q"]),
        (lambda: lying(shape="all"), ["q"]),
        (lambda: lying(dtype="F8_E4M3"), ["q"]),
        (lambda: lying(dtype=3), ["q"]),
        (lambda: good_tensors(v=None), ["has no tensor", "v"]),
        (lambda: good_tensors(q=[1, 2, 3]), ["q", "[layers, heads, tokens, head_dim]"]),
        (lambda: good_tensors(k=[1, 1, 4, 8]), ["k", "v", "same shape"]),
        (lambda: good_tensors(q=[1, 3, 3, 8], k=[1, 2, 3, 8], v=[1, 2, 3, 8]), ["no multiple"]),
        (lambda: good_tensors(q=[1, 2, 3, 12], k=[1, 1, 3, 12], v=[1, 1, 3, 12]), ["head_dim 12", "multiple of 8"]),
        (lambda: good_tensors(q=[1, 2, 3, 1024], k=[1, 1, 3, 1024], v=[1, 1, 3, 1024]), ["head_dim 1024", "576"]),
        (lambda: one_value(math.nan), ["v[0, 0, 2, 4] is NaN", "finite"]),
        (lambda: one_value(-math.inf), ["v[0, 0, 2, 4] is infinite"]),
    ],
)
@pytest.mark.parametrize("command", ["eval", "run"])
def test_a_dump_is_refused(config, tmp_path, command, make, parts):
    path = tmp_path / "dump"
    content = make()
    path.write_bytes(content) if isinstance(content, bytes) else write_tensors(path, content)
    if command == "eval":
        done = kvlab("eval", path, "--variants", "concat", "--out", tmp_path / "out")
    else:
        done = run(config, tmp_path / "out", "--set", f"workload.dump={path}")
    assert_refused(done, str(path), *parts)
    assert not (tmp_path / "out").exists()


def test_every_truncation_of_a_dump_is_refused(tmp_path):
    write_tensors(tmp_path / "whole", good_tensors())
    whole = (tmp_path / "whole").read_bytes()
    for size in range(0, len(whole), 29):
        (tmp_path / "cut").write_bytes(whole[:size])
        assert_refused(kvlab("eval", tmp_path / "cut", "--variants", "concat", "--out", tmp_path / "out"), "cut")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "args, parts",
    [
        (["--variants", ""], ["--variants is empty"]),
        (["--variants", " ; "], ["--variants is empty"]),
        (["--variants", "concat;concat/f32"], ["'concat' twice"]),
        (["--variants", "concat", "--prompt", "20"], ["--prompt 20", "19 tokens"]),
        (["--variants", "concat", "--prompt", "-1"], ["--prompt"]),
        (["--variants", "concat", "--isa", "avx9"], ["avx9"]),
        pytest.param(["--variants", "concat", "--device", "cuda"], ["no GPU can be used"], marks=without_gpu),
        (["--variants", "concat", "--out", "/proc/x"], ["/proc/x"]),
    ],
)
def test_eval_is_refused(tmp_path, args, parts):
    make_dump(tmp_path / "dump", "F32")
    out = [] if "--out" in args else ["--out", tmp_path / "out"]
    assert_refused(kvlab("eval", tmp_path / "dump", *args, *out), *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [0, 500, 2000])
def test_eval_on_a_full_disk_leaves_nothing(tmp_path, size):
    make_dump(tmp_path / "dump", "F32")
    done = kvlab("eval", tmp_path / "dump", "--variants", "concat", "--out", tmp_path / "out", preexec_fn=no_file_beyond(size))
    skip_where_openmp_needs_a_file(done)
    assert_refused(done, "cannot write")
    assert not (tmp_path / "out").exists()


def test_eval_overwrites_nothing(tmp_path):
    make_dump(tmp_path / "dump", "F32")
    command = ["eval", tmp_path / "dump", "--variants", "concat", "--out", tmp_path / "out"]
    assert kvlab(*command).returncode == 0
    before = (tmp_path / "out" / "cells.csv").read_bytes()
    assert_refused(kvlab(*command), "already holds results")
    assert (tmp_path / "out" / "cells.csv").read_bytes() == before


# A dump is a workload of `run`, too.
def test_run_on_a_dump(config, tmp_path):
    make_dump(tmp_path / "dump", "F16", q_heads=8, kv_heads=4)
    done = run(config, tmp_path / "out", "--set", f"workload.dump={tmp_path / 'dump'}", "--set", f"sweep.seq_len=[{N}, 20]")
    assert done.returncode == 0, done.stderr
    for row in cells_by_key(tmp_path / "out").values():
        assert (row["workload"], row["layers"], row["q_heads"], row["kv_heads"]) == ("dump", "2", "8", "4")
        if row["seq_len"] == "20":
            assert (row["status"], row["reason"]) == ("unsupported", f"workload 'dump' has only {N} tokens")
        else:
            assert row["status"] == "ok" and float(row["err_rel_l2"]) < 1e-5  # f16 values are exact in f16
