"""Runs that several tests look at."""

import time

import pytest
from program import CONFIG, DATA, run


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def results(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "run"
    done = run(config, folder, "--set", "decode.seq_len=64")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def uninterrupted(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    started = time.monotonic()
    assert run(config, folder).returncode == 0
    return folder, time.monotonic() - started


@pytest.fixture(scope="module")
def model():
    if not (DATA / "models" / "stories260K.bin").exists():
        pytest.skip(f"no models in {DATA}; KVLAB_DATA names another folder")
    return {"--model": DATA / "models" / "stories260K.bin", "--tokenizer": DATA / "models" / "tok512.bin",
            "--text": DATA / "text" / "tinystories_valid_sample.txt"}
