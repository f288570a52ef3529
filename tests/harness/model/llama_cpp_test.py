"""llama.cpp as a whole engine: what its programs print, and what kvlab asks them and makes of it."""
from __future__ import annotations

import csv
import json
import math
import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from gguf_models import write_model
from gguf_test import HOME, kvlab

PEERS = HOME / "harness" / "peers"
INSTALLED = HOME / ".venv-peers" / "llama.cpp" / "llama-server"
RECORDED = Path(__file__).with_name("llama_cpp_recorded")
WINDOWS, CONTEXT, SCORED = 4, 64, 31  # tokens; predictions of a window: of its second half, without the next window's token
CONFIG = """
threads = 1
workload = {{ model = "{model}", text = "{text}" }}
measure = {{ repetitions = 2, steps = 4, retries = 0, aa_test = false }}
[quality]
seq_len = 64
batch = 4
variants = ["contiguous", "contiguous/q8_0", "contiguous/split(k=q8_0,v=q4_0)"]
[whole_model]
seq_len = 64
variants = ["contiguous/f16"]
[sweep]
engines = ["llama.cpp(k=f16,v=f16)", "llama.cpp(k=q8_0,v=q8_0)", "llama.cpp(k=q8_0,v=q4_0,rotate=off)"]
"""
# An engine that writes down what it is asked, and answers as llama.cpp.py does.
FAKE = """
# /// script
# dependencies = []
# ///
import json

NEEDS = []
KL = {"f16": 1e-9, "q8_0": 1e9}


class Engine:
    def told(self, request):
        with open(ASKED, "a") as file:
            file.write(json.dumps(request) + chr(10))
        return {"peer_version": "fake 1", "peer_settings": "none", "peer_bytes_reported": 1 << 20, "held_bytes_per_token": 77.5}

    def read(self, request):
        if request["cache"]["k"] == "f32":
            return {"loss": float("nan")}  # no JSON
        kl = KL[request["cache"]["v"]] if request["cache"]["v"] in KL else 0.5
        return {**self.told(request), "loss": 2, "loss_change": 0.1, "loss_change_ci_low": 0.05, "loss_change_ci_high": 0.2, "kl_mean": kl,
                "kl_mean_ci_low": kl / 2, "kl_mean_ci_high": kl * 2, "versus": "llama.cpp(k=f32,v=f32)"}

    def time(self, request):
        return {"columns": self.told(request), "step_us": [100.0, 400.0], "prompt_us": [5e3, 6e3]}
"""


def loaded() -> Any:
    spec = spec_from_file_location("llama_cpp", PEERS / "llama.cpp.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_the_statistics_are_those_that_it_printed() -> None:
    found = loaded().statistics(recorded("perplexity.txt"))
    for name, value in json.loads(recorded("statistics.json")).items():
        assert found[name] == pytest.approx(value, rel=1e-6), name
    assert found["loss"] == pytest.approx(math.log(found["perplexity"]))
    # A cache that changes next to nothing has a variance below 0, of rounding.
    unknown = loaded().statistics(re.sub(r"(Mean ln.*) ± .*", r"\1 ±       -nan", recorded("perplexity.txt")))
    assert {name: found[name] for name in found.keys() - unknown.keys()}.keys() == {"loss_change_ci_low", "loss_change_ci_high", "loss_change_se"}
    with pytest.raises(ValueError, match="RMS"):
        loaded().statistics(recorded("perplexity.txt").replace("RMS", "rms"))


def test_the_cache_is_the_one_that_it_logged() -> None:
    found = loaded().cache_of(recorded("perplexity.txt"))
    assert found == {"peer_bytes_reported": round(4.57 * 2**20), "held_bytes_per_token": round(4.57 * 2**20) / 512,
                     "peer_settings": "K q8_0, V q4_0; K rotated; V rotated"}  # fmt: skip
    with pytest.raises(ValueError, match="size of its cache"):
        loaded().cache_of("")


def test_rates_become_times_of_each_repetition() -> None:
    rates = json.loads(recorded("bench.json"))[0]["samples_ts"]
    assert loaded().seconds_each(recorded("bench.json"), 1e6) == pytest.approx([1e6 / rate for rate in rates]) and len(rates) == 3


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    text = folder / "text.txt"
    text.write_text("the and in a thin hat, an inn and the band. " * 60)
    return {"model": write_model(folder / "tiny.gguf", "llama", "Q8_0"), "text": text}


def home_with(folder: Path, peers: Path | None = None) -> Path:
    """The project, with a .models of its own and other peers."""
    folder.mkdir()
    for name in ("configs", "plots", ".venv", ".venv-peers"):
        if (HOME / name).exists():
            (folder / name).symlink_to(HOME / name)
    (folder / "harness").mkdir()
    for entry in (HOME / "harness").iterdir():
        (folder / "harness" / entry.name).symlink_to(peers if peers and entry.name == "peers" else entry)
    return folder


def rows_of(home: Path, files: dict[str, Path], *more: str, python: str = sys.executable, experiment: str = '["quality"]', fails: int = 0) -> list[dict[str, str]]:
    config, out = home / "config.toml", home / "out"
    config.write_text(CONFIG.format(**files))
    done = kvlab(home, "run", config, "--out", out, "--no-plots", "--set", f"experiment={experiment}", *more, KVLAB_PEERS_PYTHON=python)
    assert done.returncode == fails, done.stderr + done.stdout
    (home / "said").write_text(done.stdout)
    checked = kvlab(home, "check-results", out, KVLAB_PEERS_PYTHON=python)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with (out / "cells.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> tuple[Path, list[dict[str, str]], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("fake")
    peers, asked = folder / "peers", folder / "asked"
    peers.mkdir()
    shutil.copy(PEERS / "serve.py", peers)
    (peers / "llama.cpp.py").write_text(FAKE.replace("ASKED", repr(str(asked))))
    home = home_with(folder / "home", peers)
    rows = rows_of(home, files, experiment='["quality", "model"]')
    return home, rows, [json.loads(line) for line in asked.read_text().splitlines()]


def test_an_engine_reads_the_windows_of_the_other_cells(fake: Any, files: dict[str, Path]) -> None:
    home, rows, asked = fake
    reads = [request for request in asked if request["do"] == "read"]
    assert [request["cache"] for request in reads] == [
        {"k": "f16", "v": "f16", "fa": "on", "rotate": "on"}, {"k": "q8_0", "v": "q8_0", "fa": "on", "rotate": "on"},
        {"k": "q8_0", "v": "q4_0", "fa": "on", "rotate": "off"}]  # fmt: skip
    for request in reads:
        assert (request["windows"], request["context"], request["threads"]) == (WINDOWS, CONTEXT, 1)
        assert (request["model"], request["text"]) == (str(files["model"]), str(files["text"]))
        assert len(request["tokens"]) == WINDOWS * CONTEXT and request["tokens"] == reads[0]["tokens"]
    own = [row for row in rows if row["experiment"] == "quality" and not row["peer"]]
    assert [row["predictions"] for row in own] == [str(WINDOWS * SCORED)] * 3


def test_an_engines_cell_has_its_figures_and_its_companion(fake: Any) -> None:
    home, rows, _ = fake
    cells = {row["variant"]: row for row in rows if row["experiment"] == "quality"}
    row = cells["llama.cpp(k=q8_0,v=q4_0,rotate=off)"]
    assert (row["status"], row["peer"], row["codec"], row["peer_versus"]) == ("ok", "llama.cpp", "split(k=q8_0,v=q4_0)", "contiguous/split(k=q8_0,v=q4_0)")
    assert (row["loss"], row["kl_mean"], row["versus"], row["verdict"]) == ("2", "0.5", "llama.cpp(k=f32,v=f32)", "worse")
    assert (row["peer_version"], row["peer_bytes_reported"], row["held_bytes_per_token"]) == ("fake 1", str(1 << 20), "77.5")
    assert row["engines"] == "llama.cpp: LLAMA_ATTN_ROT_DISABLE=1 llama-server -ctk q8_0 -ctv q4_0 -fa on" and row["bytes_payload"] == ""
    assert cells["llama.cpp(k=f16,v=f16)"]["peer_versus"] == ""  # no cell here has its bits
    said = " ".join((home / "said").read_text().split())
    assert "the KL divergence of 0 of 2 engines' caches agrees with that of kvlab's cache of the same bits; not that of llama.cpp(k=q8_0,v=q8_0)" in said


def test_an_engines_times_are_samples_like_others(fake: Any) -> None:
    _, rows, asked = fake
    timed = [request for request in asked if request["do"] == "time"]
    assert [(request["depth"], request["steps"], request["repetitions"], request["prompt"]) for request in timed] == [(55, 4, 2, True)] * 3
    row = next(row for row in rows if row["experiment"] == "model" and row["peer"])
    assert (row["status"], row["step_p50_us"], row["prefill_p50_us"], row["samples"]) == ("ok", "250", "5500", "2")
    assert float(row["tokens_per_s"]) == 4000 and row["attend_p50_us"] == row["weights_type"] == ""
    own = next(row for row in rows if row["experiment"] == "model" and not row["peer"])
    assert (own["status"], own["weights_type"]) == ("ok", "q8_0")


def test_an_engine_that_answers_no_json_is_started_again(fake: Any, files: dict[str, Path], tmp_path: Path) -> None:
    home = home_with(tmp_path / "home", fake[0].parent / "peers")
    rows = rows_of(home, files, "--set", 'sweep.engines=["llama.cpp(k=f32,v=f32)","llama.cpp(k=q8_0,v=q8_0)"]', fails=1)
    first, second = (row for row in rows if row["peer"])
    assert first["status"] == "failed" and "not a JSON object" in first["reason"] and second["status"] == "ok"


def test_what_cannot_be_read_is_said(files: dict[str, Path], tmp_path: Path) -> None:
    home = home_with(tmp_path / "home")
    for i, (setting, reason) in enumerate({"workload.text_from=8": "from its beginning", "workload.k_order=halves": "file's order"}.items()):
        shutil.rmtree(home / "out", ignore_errors=True)
        rows = rows_of(home, files, "--set", setting)
        assert all(row["status"] == "unsupported" and reason in row["reason"] for row in rows if row["peer"]), i
    shutil.rmtree(home / "out")
    rows = rows_of(home, files, python=str(tmp_path / "no-python"))
    assert {row["reason"] for row in rows if row["peer"]} == {"install it with: ./kvlab peers install llama.cpp"}


@pytest.mark.skipif(not INSTALLED.exists(), reason="peer llama.cpp is not installed here")
def test_the_engine_itself_writes_tokens(files: dict[str, Path], tmp_path: Path) -> None:
    home = home_with(tmp_path / "home")
    rows = rows_of(home, files, experiment='["model"]', python=str(HOME / ".venv-peers/bin/python"))
    assert all(row["status"] == "ok" and float(row["tokens_per_s"]) > 0 for row in rows)
