"""`kvlab run` on a real model, where there is one."""

import re
import struct

from program import DATA, assert_refused, cells_by_key, cells_of, run, unmeasured_cells


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


def test_a_model_that_lies_is_refused(model, config, tmp_path):
    whole = model["--model"].read_bytes()
    absurd = struct.pack("<7i", 1 << 30, 1 << 30, 1 << 30, 1, 1, 1 << 30, 1 << 30)
    for content in (b"", whole[:20], whole[:-4], whole + b"x", absurd + whole[28:], struct.pack("<7i", *[-1] * 7)):
        (tmp_path / "bad.bin").write_bytes(content)
        done = run(config, tmp_path / "out", *flat({**model, "--model": tmp_path / "bad.bin"}))
        assert_refused(done, "bad.bin")
    wrong = run(config, tmp_path / "out", *flat({**model, "--tokenizer": DATA / "models" / "tok105.bin"}))
    assert_refused(wrong, "tok105.bin")
    swapped = run(config, tmp_path / "out", *flat({**model, "--tokenizer": model["--model"]}))
    assert_refused(swapped, "stories260K.bin")
    assert not (tmp_path / "out").exists()
