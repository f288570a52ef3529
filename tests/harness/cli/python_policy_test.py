"""Policies and codecs in Python, as users meet them: they keep and store what C++ does, they may fail, and they are not timed."""

import json
import re

import pytest
from program import HOME, assert_refused, by_variant, results_of, succeeded, table
from program import run as run_config

CONFIG = HOME / "configs" / "quality.toml"
KNORM = HOME / "configs" / "policies" / "knorm.py"
INT8 = HOME / "configs" / "codecs" / "int8.py"
STEPS = f"contiguous/python({KNORM}:score,budget=20,when=step)"
CODED = f"contiguous/python_codec({INT8})"
EQUAL = {CODED: "contiguous/token(mode=symmetric,read=copy)",
         f"{CODED}/h2o(heavy=10,recent=10)": "contiguous/token(mode=symmetric,read=copy)/h2o(heavy=10,recent=10)",
         f"{CODED}/python({KNORM}:score,budget=20,when=step)": "contiguous/token(mode=symmetric,read=copy)/knorm(budget=20)"}  # fmt: skip
SMALL = {
    "experiment": "quality", "quality.variants": ["contiguous", "contiguous/knorm(budget=20)", STEPS, f"contiguous/python({KNORM}:score,budget=20)"],
    "quality.seq_len": 64, "quality.batch": 2, "quality.prompt": 40, "quality.stated_context": 64,
}  # fmt: skip
results = results_of(CONFIG, SMALL)
FILE = """import numpy as np

def seeded(k, v, attention, position):
    print("this goes nowhere")
    return np.random.random(position.shape)

def shape(k, v, attention, position):
    return k[0]

def nan(k, v, attention, position):
    return np.full(position.shape, np.nan)

def writes(k, v, attention, position):
    k[:] = 0

def ends(k, v, attention, position):
    import os
    os._exit(3)

def weights(k, v, attention, position):
    assert k.shape == v.shape == (*position.shape, k.shape[2]) and attention.shape == position.shape
    assert (np.diff(position) > 0).all() and (attention >= 0).all()
    return attention
"""


CODEC = """import numpy as np

def encode(row):
    return row.tobytes() + bytes(row.tobytes()[0] % 7)

def decode(code, shape):
    return np.frombuffer(code, np.float32, shape[1]).reshape(shape)
"""


def run_codecs(folder, *files, **settings):
    for i, text in enumerate(files):
        (folder / f"codec{i}.py").write_text(text)
    variants = ["contiguous", *(f"contiguous/python_codec({folder}/codec{i}.py)" for i in range(len(files)))]
    return run_config(CONFIG, folder / "out", {**SMALL, "quality.variants": variants, **settings})


def run(folder, *functions, file=FILE, again=(), **changed):
    policy = folder / "policy.py"
    policy.write_text(file)
    variants = ["contiguous", *(f"contiguous/python({policy}:{function})" for function in functions)]
    settings = {**SMALL, "quality.variants": variants, **{key.replace("__", "."): value for key, value in changed.items()}}
    return run_config(CONFIG, folder / "out", settings, *again)


def assert_each_failed_alone(done, folder, reasons):
    """The first cell, without a function, and the last one are measured; each between them has its reason."""
    assert done.returncode == 1, done.stderr
    rows = table(folder / "out" / "cells.csv")
    assert [row["status"] for row in rows] == ["ok", *["failed"] * len(reasons), "ok"]
    for row, said in zip(rows[1:], reasons):
        assert re.search(said, row["reason"]), row["reason"]


def test_knorm_in_python_is_knorm_in_cpp(results):
    rows = by_variant(table(results / "cells.csv"))
    cpp, python = rows["contiguous/knorm(budget=20)"], rows[STEPS]
    own = {"cell", "variant", "series", "label", "retention", "policy_calls", "policy_call_us", "bytes_workspace_peak", "peak_bytes"}
    differing = {column for column in cpp if cpp[column] != python[column] and "seconds" not in column}
    assert cpp["status"] == "ok" and float(cpp["kl_mean"]) > 0 and differing - own <= {"tokens_per_s"}
    for column in ("loss", "kl_max", "bytes_metadata", "bytes_payload", "verdict", "kept_tokens"):
        assert cpp[column] == python[column] != ""


def test_calls_are_counted_and_no_time_includes_them(results):
    rows = by_variant(table(results / "cells.csv"))
    layers = int(json.loads((HOME / "configs/models/kvlab-recall-1m/config.json").read_text())["num_hidden_layers"])
    calls = {variant: row["policy_calls"] for variant, row in rows.items()}
    assert list(calls.values()) == ["", "", str(2 * layers * 45), str(2 * layers)]
    for variant, row in rows.items():
        is_python = "python" in variant
        assert (row["policy_call_us"] != "") == is_python
        assert (row["cache_seconds"] == row["tokens_per_s"] == "") == is_python
    again = run_config(CONFIG, results, SMALL, "--resume")
    assert re.search(r"Functions in Python: \d+ calls of \d+ us on average \[policy_call_us\]", " ".join(succeeded(again).stdout.split()))


def test_a_run_can_be_repeated(tmp_path):
    losses = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        succeeded(run(tmp_path / name, "seeded,budget=20", "weights,budget=20,when=4,attention=newest,sinks=2,recent=3"))
        losses.append([(row["status"], row["loss"]) for row in table(tmp_path / name / "out" / "cells.csv")])
    assert losses[0] == losses[1] and {status for status, _ in losses[0]} == {"ok"} and len({loss for _, loss in losses[0]}) == 3


def test_an_error_names_its_line_and_ends_its_cell_alone(tmp_path):
    done = run(tmp_path, *(f"{name},budget=20" for name in ("shape", "nan", "writes", "ends", "seeded")))
    reasons = (r"policy\.py:7: ValueError: it returned an array of shape \(\d+, \d+\), not \(\d+, 40\)", r"policy\.py:10: ValueError: a score is NaN",
               r"policy\.py:14: ValueError: assignment destination is read-only", "ended")  # fmt: skip
    assert_each_failed_alone(done, tmp_path, [rf"^python\(.*policy\.py:\w+\) .*{said}" for said in reasons])


def test_files_that_cannot_be_imported_are_refused_before_anything_is_written(tmp_path):
    for function, file, named in [("missing,budget=20", FILE, ["policy.py", "no function missing"]), ("f", "import numpy\nx = = 1", ["policy.py:2", "SyntaxError"]),
                                  ("f", "\n1 / 0", ["policy.py:2", "ZeroDivisionError: division by zero"])]:  # fmt: skip
        assert_refused(run(tmp_path, function, file=file), *named)
        assert not (tmp_path / "out").exists()
    assert_refused(run(tmp_path, "seeded,budget=20", quality__variants=["contiguous/python(nowhere.py:f)"]), "nowhere.py")
    assert_refused(run(tmp_path, "seeded,budget=20", quality__variants=["contiguous/python"]), "python(policy.py:score)")


def test_another_file_is_not_resumed(tmp_path):
    succeeded(run(tmp_path, "seeded,budget=20"))
    environment = json.loads((tmp_path / "out" / "env.json").read_text())
    ((name, digest),) = environment["policies"].items()
    assert name.endswith("policy.py:seeded") and re.fullmatch("[0-9a-f]{16}", digest)
    succeeded(run(tmp_path, "seeded,budget=20", again=["--resume"]))
    assert_refused(run(tmp_path, "seeded,budget=20", file=FILE + "\n", again=["--resume"]), "--resume", "policies")


@pytest.mark.parametrize("variant", [STEPS, CODED])
def test_what_times_caches_refuses_them(config, tmp_path, variant):
    done = run_config(config, tmp_path / "out", {"sweep.variants": ["contiguous", variant], "experiment": "decode"})
    (row,) = [row for row in table(tmp_path / "out" / "cells.csv") if row["variant"] == variant and row["seq_len"] == "32"]
    assert done.returncode == 0 and row["status"] == "unsupported"
    assert row["reason"] == "functions in Python run in quality, recall, task and stream alone: their calls' time is not a cache's"


def test_int8_in_python_is_token_in_cpp(tmp_path):
    succeeded(run_config(CONFIG, tmp_path / "out", {**SMALL, "quality.variants": ["contiguous", *EQUAL, *EQUAL.values()]}))
    rows = by_variant(table(tmp_path / "out" / "cells.csv"))
    for python, cpp in EQUAL.items():
        own, like = rows[python], rows[cpp]
        for column in ("status", "loss", "kl_mean", "kl_max", "verdict", "kept_tokens", "encoded_share", "bits_per_value"):
            assert own[column] == like[column] != "", (python, column)
        assert 0 < float(own["kl_max"]) and 8 < float(own["bits_per_value"]) < 10 and own["bytes_predicted"] == ""
    own, like = rows[CODED], rows[EQUAL[CODED]]
    assert int(own["bytes_payload"]) == int(like["bytes_payload"]) + int(like["bytes_metadata"])
    assert own["held_bytes_per_token"] == like["held_bytes_per_token"] != ""
    assert int(own["policy_calls"]) > 0 and own["cache_seconds"] == own["tokens_per_s"] == ""
    assert any(name.endswith("int8.py:encode+decode") for name in json.loads((tmp_path / "out" / "env.json").read_text())["policies"])


def test_codes_of_any_length_are_counted_and_rows_come_one_by_one(tmp_path):
    log = tmp_path / "lengths"
    counts = CODEC.replace("    return np", f'    open("{log}", "a").write(f"{{len(code)}} {{shape[0]}}\\n")\n    return np')
    done = run_codecs(tmp_path, counts, **{"quality.prompt": 40, "quality.batch": 1})
    succeeded(done)
    _, row = table(tmp_path / "out" / "cells.csv")
    lengths, ones = zip(*(map(int, line.split()) for line in log.read_text().splitlines()))
    assert row["verdict"] == "identical" and set(ones) == {1} and len(set(lengths)) > 1
    assert sum(lengths) == int(row["bytes_payload"])
    assert float(row["held_bytes_per_token"]) == pytest.approx(sum(lengths) / 64, rel=1e-5)


def test_an_error_of_a_codec_names_its_line_and_ends_its_cell_alone(tmp_path):
    wrong = [CODEC.replace(*change) for change in (("return row.tobytes() + bytes(row.tobytes()[0] % 7)", "return len(row)"), (".reshape(shape)", "[1:]"),
             (".reshape(shape)", ".reshape(shape) * np.nan"), ("return row.tobytes() + bytes(row.tobytes()[0] % 7)", "row[:] = 0"))]  # fmt: skip
    assert_each_failed_alone(run_codecs(tmp_path, *wrong, CODEC), tmp_path, [
        r"codec0\.py:3: TypeError: it returned int, not bytes", r"codec1\.py:6: ValueError: it returned an array of shape \(\d+,\), not \(1, \d+\)",
        r"codec2\.py:6: ValueError: a value is NaN or infinite", r"codec3\.py:4: ValueError: assignment destination is read-only"])  # fmt: skip


def test_codecs_are_refused_in_one_line(tmp_path):
    assert_refused(run_codecs(tmp_path, "def encode(row):\n    return b''"), "codec0.py has no function decode")
    for variant, said, lines in (("contiguous/python_codec", "python_codec(codec.py)", 1), ("contiguous/python_codec(nowhere.py)", "nowhere.py", 1),
                                 ("contiguous/split(k=python_codec(a.py))", "no side of a split takes 'python_codec'", 3)):  # fmt: skip
        assert_refused(run_codecs(tmp_path, **{"quality.variants": [variant]}), said, lines=lines)
    assert not (tmp_path / "out").exists()
