"""Bytes that a reader takes for the model's: all of its layers beside the measured one, the peak while growing, and the time of
all appends."""

import shutil

import pytest
from program import by_variant, kvlab, run, succeeded, table

TOKENS = 640  # more than Gemma 3's window, and no power of two
F32 = 4


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
