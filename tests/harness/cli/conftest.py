"""Runs that several files look at: made once a process, and changed only in copies."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from program import CONFIG, DATA, convert, run, succeeded


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def timed_results(config, tmp_path_factory):
    """The folder of a whole run, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("results") / "run"
    started = time.monotonic()
    succeeded(run(config, folder))
    return folder, time.monotonic() - started


@pytest.fixture(scope="session")
def results(timed_results):
    return timed_results[0]


@pytest.fixture(scope="session")
def file_operations(tmp_path_factory):
    """A library that counts a command's file operations, and ends or refuses one of them; see program.counted."""
    library = tmp_path_factory.mktemp("file_operations") / "count.so"
    subprocess.run(["cc", "-shared", "-fPIC", Path(__file__).with_name("file_operations.c"), "-o", library], check=True)
    return library


@pytest.fixture
def config_json(tmp_path):
    """Writes a model of two layers."""
    def write(**facts):
        path = tmp_path / "tiny.json"
        path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                                    "num_key_value_heads": 2, "head_dim": 32, **facts}))
        return path

    return write


@pytest.fixture
def copy(results, tmp_path):
    return shutil.copytree(results, tmp_path / "copy")


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    if not (DATA / "models" / "stories260K.bin").exists():
        pytest.skip(f"no models in {DATA}; KVLAB_DATA names another folder")
    folder = tmp_path_factory.mktemp("models") / "stories260K"
    succeeded(convert(DATA / "models" / "stories260K.bin", DATA / "models" / "tok512.bin", folder))
    return {"--model": folder, "--text": DATA / "text" / "tinystories_valid_sample.txt"}
