"""Logits of small random Hugging Face models: kvlab's against those of transformers.

transformers and PyTorch live in an environment of their own, .build/transformers: Debian's python3-torch, which
`./kvlab test` installs, and what tests/harness/model/requirements-transformers.txt takes from PyPI. Where they cannot be had the
tests skip; tests/harness/model/hugging_face_test.cc holds the same models against an FP64 forward pass in any case.
"""
from __future__ import annotations

import json
import os
import subprocess
from array import array
from pathlib import Path

import pytest

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
ENVIRONMENT = HOME / ".build" / "transformers"
REQUIREMENTS = Path(__file__).parent / "requirements-transformers.txt"
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's packages are for
CASES = """llama llama_mha_tied_theta llama_bias_llama3 llama_linear llama_f16_shards llama_bf16_tied
    mistral_window_head_dim mistral_bf16_shards qwen2""".split()
BOUND = 1e-4


def run(*command: object, timeout_s: int = 1000) -> None:
    """Runs a command; raises CalledProcessError with its output, or what subprocess raises where it cannot start."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [str(word) for word in command],
        check=True, capture_output=True, text=True, timeout=timeout_s, env=environment,
    )  # fmt: skip


def prepare_environment() -> None:
    installed = ENVIRONMENT / REQUIREMENTS.name
    if installed.exists() and installed.read_text() == REQUIREMENTS.read_text():
        return
    run(SYSTEM_PYTHON, "-c", "import torch, numpy")
    run(SYSTEM_PYTHON, "-m", "venv", "--clear", "--system-site-packages", ENVIRONMENT)
    run(ENVIRONMENT / "bin" / "pip", "install", "--retries", "1", "--timeout", "20", "--no-deps", "-r", REQUIREMENTS)
    installed.write_text(REQUIREMENTS.read_text())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        prepare_environment()
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        pytest.skip(f"no PyTorch and transformers here: {said[-1] if said else error}")
    folder = tmp_path_factory.mktemp("models")
    run(ENVIRONMENT / "bin" / "python", Path(__file__).parent / "transformers_models.py", folder)
    return folder


def read_logits(path: Path) -> array:
    """The one tensor of a safetensors file."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    assert list(json.loads(data[8 : 8 + header_bytes])) == ["logits"]
    return array("f", data[8 + header_bytes :])


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, models: Path, tmp_path: Path) -> None:
    folder, out = models / case, tmp_path / "logits.safetensors"
    run(PROGRAM, "logits", "--model", folder, "--text", folder / "tokens.npy", "--out", out)
    got, want = read_logits(out), array("f", (folder / "logits.f32").read_bytes())
    assert len(got) == len(want)
    worst = max(abs(g - w) for g, w in zip(got, want))
    spread = max(want) - min(want)
    assert worst < BOUND, f"{worst} of logits that span {spread}"
    assert spread > 1, "logits so alike would agree by accident"


def test_every_case_is_tested(models: Path) -> None:
    assert sorted(folder.name for folder in models.iterdir()) == sorted(CASES)
