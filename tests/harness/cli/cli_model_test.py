"""Models of a run: a real one, where there is one, and the whole of one that is measured in part: the bytes of all of its layers and its
peak while growing."""

import math
import re
import shutil
import struct

import pytest
from program import assert_refused, by_variant, cells_by_key, cells_of, convert, kvlab, run, succeeded, table, unmeasured_cells

TOKENS = 640  # more than Gemma 3's window, and no power of two
F32 = 4


def flat(options):
    return [word for pair in options.items() for word in pair]


def test_run_on_a_real_model(model, config, tmp_path):
    """Named on the command line it is what is measured, whatever the config sweeps over; and it runs again."""
    sweep = {"sweep.workload": "outliers", "sweep.seq_len": [128, 512, 513], "experiment": "decode"}
    for row in cells_of(config, tmp_path / "out", *flat(model), sweep):
        assert (row["workload"], row["phase"]) == ("model", "decode")
        assert [row[c] for c in ("layers", "q_heads", "kv_heads", "head_dim")] == ["5", "8", "4", "8"]
        if row["seq_len"] == "513":
            assert (row["status"], row["reason"]) == ("unsupported", "workload 'model' has only 512 tokens")
            continue
        assert row["status"] == "ok"
        # Real scores are large, and softmax makes f16's relative errors of them its absolute ones.
        assert 0 < float(row["err_rel_l2"]) < (1e-2 if "f16" in row["variant"] else 1e-5)
        assert float(row["err_kernel_rel_l2"]) < 1e-5
        assert int(row["bytes_payload"]) == 5 * 4 * 8 * 2 * int(row["seq_len"]) * (2 if "f16" in row["variant"] else 4)
    cells_of(tmp_path / "out" / "config.toml", tmp_path / "again", cwd=tmp_path)
    errors = lambda folder: {key: row["err_rel_l2"] for key, row in cells_by_key(folder).items()}
    assert errors(tmp_path / "again") == errors(tmp_path / "out")


def test_a_text_shorter_than_the_sweep_is_said(model, config, tmp_path):
    (tmp_path / "short.txt").write_text("Once upon a time")
    for row in unmeasured_cells(config, tmp_path / "out", *flat({**model, "--text": tmp_path / "short.txt"}), {"sweep.seq_len": 64}):
        assert row["status"] == "unsupported" and re.fullmatch(r"workload 'model' has only \d+ tokens", row["reason"])


def test_a_model_that_lies_is_refused(tmp_path):
    """The model of five vectors of 4, three pieces and a context of 2, and what differs from it."""
    weights, pieces, folder = tmp_path / "model.bin", tmp_path / "pieces.bin", tmp_path / "folder"
    header, norm, square, table = (4, 2, 1, 2, 1, 3, 2), 4 * 4, 4 * 16, struct.pack("<4f", 1, math.cos(1), 0, math.sin(1))
    whole = struct.pack("<7i", *header) + bytes(3 * norm + norm + 3 * square + norm + 3 * 32 + norm) + table
    tokens = struct.pack("<I", 5) + b"".join(struct.pack("<fi", 0, len(p)) + p for p in (b"<unk>", b"\n<s>\n", b"a"))
    weights.write_bytes(whole)
    pieces.write_bytes(tokens)
    succeeded(convert(weights, pieces, folder))
    assert_refused(convert(weights, pieces, folder), "folder' already exists")
    absurd = struct.pack("<7i", 1 << 30, 1 << 30, 1 << 30, 1, 1, 1 << 30, 1 << 30)
    odd = struct.pack("<7i", 4, 2, 1, 3, 1, 3, 2)
    for content in (b"", whole[:20], whole[:-4], whole + b"x", absurd + whole[28:], odd + whole[28:], struct.pack("<7i", *[-1] * 7),
                    whole[:-4] + struct.pack("<f", 0.5)):  # fmt: skip
        weights.write_bytes(content)
        assert_refused(convert(weights, pieces, tmp_path / "bad"), "model.bin", out=tmp_path / "bad")
    weights.write_bytes(whole)
    for content in (b"", tokens[:-1], tokens + b"x", tokens[:4] + struct.pack("<f", math.nan) + tokens[8:]):
        pieces.write_bytes(content)
        assert_refused(convert(weights, pieces, tmp_path / "bad"), "pieces.bin", out=tmp_path / "bad")
    assert_refused(kvlab("logits", "--model", weights, "--text", "README.md", "--out", tmp_path / "bad"), "kvlab models convert")


@pytest.fixture(scope="module", params=["llama-3-8b", "gemma-3-1b"])
def measured(request, config, tmp_path_factory):
    """A folder that measures one layer of a preset, and what the program printed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    one_layer = {"model": f'{{preset="{request.param}"}}', "measure.attend": False, "measure.steps": 2,
                 "sweep.variants": ["contiguous", "doubling", "concat"], "sweep.seq_len": TOKENS}  # fmt: skip
    return request.param, folder, succeeded(run(config, folder, one_layer)).stdout


def of(folder, experiment):
    return by_variant([row for row in table(folder / "cells.csv") if row["experiment"] == experiment and row["verdict"] != "aa_test"])


def test_all_layers_are_counted_beside_the_measured_one(measured):
    model, folder, said = measured
    layers, expected = {
        "llama-3-8b": (32, 32 * TOKENS * 2 * 8 * 128 * F32),
        # Every sixth of 26 layers sees all tokens, the others the last 512.
        "gemma-3-1b": (26, (4 * TOKENS + 22 * 512) * 2 * 1 * 256 * F32),
    }[model]
    for experiment in ("decode", "growth"):
        row = of(folder, experiment)["contiguous"]
        assert (row["layers"], row["model_layers"]) == ("1", str(layers))
        assert int(row["model_bytes"]) == expected
    assert f"1 of {layers} layers" in said
    assert "80.0 MiB" not in said if model == "gemma-3-1b" else "(160 MiB)" in said
    assert kvlab("check-results", folder).returncode == 0


def test_a_peak_has_what_growing_holds_twice(measured):
    _, folder, _ = measured
    for experiment in ("decode", "growth"):
        rows = of(folder, experiment)
        held, peak = ({name: int(row[column]) for name, row in rows.items()} for column in ("bytes_predicted", "peak_bytes"))
        workspace = {name: int(row["bytes_workspace_peak"]) for name, row in rows.items()}
        assert held["contiguous"] <= peak["contiguous"] <= held["contiguous"] + workspace["contiguous"] + (held["contiguous"] // 8)
        side = held["concat"] // 2  # K, or V: one of the two is copied at a time
        assert peak["concat"] >= held["concat"] + side * (TOKENS - 1) // TOKENS
        assert peak["doubling"] >= held["doubling"]


def test_other_bytes_of_the_whole_model_are_found(measured, tmp_path):
    _, folder, _ = measured
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "cells.csv").write_text((copy / "cells.csv").read_text().replace(of(folder, "decode")["contiguous"]["model_bytes"], "17"))
    done = kvlab("check-results", copy)
    assert done.returncode != 0 and "model_bytes is 17, but the closed form gives" in done.stdout + done.stderr
