"""Models out of GGUF files: logits against NumPy's from the file's own arrays, and what is refused."""
from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_models
import numpy
import pytest
from gguf_models import MERGES, Oracle, write_model
from safetensors.numpy import load_file

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
DATA = Path(os.environ.get("KVLAB_DATA", HOME.parent / "shared" / "data"))
SMOLLM2 = HOME / ".models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
BOUND = 1e-4

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama_linear": ("llama", {"rope__scaling__type": "linear", "rope__scaling__factor": 2.0}),
    "llama_q8_0": ("llama", {"kind": "Q8_0"}),
    "llama_q4_1": ("llama", {"kind": "Q4_1"}),
    "llama_f16": ("llama", {"kind": "F16"}),
    "llama_bf16": ("llama", {"kind": "BF16"}),
    "llama_sentence_piece": ("llama", {"tokenizer": "llama"}),
    "qwen2": ("qwen2", {"pre": "qwen2"}),
    "qwen3": ("qwen3", {"kind": "Q5_0"}),
    "gemma2": ("gemma2", {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3", {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}),
    "llama_biases": ("llama", {"biased": True}),
    "llama_factor_without_type": ("llama", {"rope__scaling__factor": 2.0}),
    "llama_older_factor": ("llama", {"rope__scale_linear": 4.0, "expert_count": 0}),
    "gemma3_of_ollama": ("gemma3", {"rope__global__freq_base": 3000.0, "rope__local__freq_base": 700.0}),
    "gpt2": ("gpt2", {}),
    "gpt2_f16": ("gpt2", {"kind": "F16"}),
    "gpt-oss": ("gpt-oss", {}),
    "gpt-oss_mxfp4": ("gpt-oss", {"kind": "Q8_0"}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a .models of its own."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("harness", "configs", "plots", ".venv"):
        (folder / name).symlink_to(HOME / name)
    return folder


def kvlab(home: Path, *arguments: object, command: tuple[str, ...] = (PROGRAM,), **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KVLAB_HOME": str(home), "KVLAB_PYTHON": "", **variables}
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=1000, env=environment)


def logits_of(home: Path, model: Path, text: Path, out: Path) -> Any:
    done = kvlab(home, "logits", "--model", model, "--text", text, "--out", out)
    assert done.returncode == 0, done.stderr
    (logits,) = load_file(out).values()
    return logits


def assert_same_logits(home: Path, model: Path, ids: Any, folder: Path) -> None:
    numpy.save(folder / "ids.npy", numpy.array(ids, "<u4"))
    ours, wanted = logits_of(home, model, folder / "ids.npy", folder / "out.safetensors"), Oracle(model).logits(ids)
    assert ours.shape == wanted.shape
    assert numpy.abs(ours - wanted).max() < BOUND * numpy.abs(wanted).max()


def assert_refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    *notes, line = done.stderr.splitlines()
    assert all(note.startswith(("kvlab: converting ", "kvlab: tokenising ")) for note in notes), done.stderr
    assert all(part in line for part in parts), line


def quality_run(model: Path, text: Path, windows: int, *variants: str) -> list[object]:
    settings = ["experiment=quality", "quality.seq_len=64", f"quality.batch={windows}", f"quality.variants={json.dumps(variants)}"]
    return ["run", "configs/quality.toml", "--model", model, "--text", text, *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_arrays(case: str, home: Path, tmp_path: Path) -> None:
    architecture, options = CASES[case]
    model = write_model(tmp_path / f"{case}.gguf", architecture, **options)
    assert_same_logits(home, model, numpy.random.default_rng(1).integers(0, 256, 64), tmp_path)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("architecture", ["qwen3", "gpt2", "gpt-oss"])
def test_weights_as_stored_have_the_bits_of_expanded_ones(architecture: str, kind: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("HIDDEN", "FEED"):
        monkeypatch.setattr(gguf_models, size, 256)
    monkeypatch.setattr(gguf_models, "HEAD_DIM", 64)
    monkeypatch.setattr(gguf_models, "LAYERS", 2)
    numpy.save(tmp_path / "ids.npy", numpy.arange(20, dtype="<u4"))
    logits = []
    for expanded in (False, True):
        model = write_model(tmp_path / f"{kind}{expanded}.gguf", architecture, kind, expanded=expanded)
        logits.append(logits_of(home, model, tmp_path / "ids.npy", tmp_path / "out"))
        assert numpy.isfinite(logits[-1]).all() and logits[-1].std() > 0.01
        folder = max((home / ".models").glob("*/model.gguf"), key=lambda path: path.lstat().st_mtime).parent
        assert (folder / "model.gguf").samefile(model) and (folder / "model.safetensors").stat().st_size < 250_000
    if architecture == "gpt-oss" and kind.endswith("F16"):  # few rows an expert, whose 16 bits are widened in registers
        assert numpy.abs(logits[0] - logits[1]).max() < BOUND
    else:
        assert (logits[0] == logits[1]).all()


def test_a_file_that_moves_is_found_again(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "here.gguf", "qwen3", "Q8_0")
    numpy.save(tmp_path / "ids.npy", numpy.arange(5, dtype="<u4"))
    before = logits_of(home, model, tmp_path / "ids.npy", tmp_path / "out")
    there = model.rename(tmp_path / "there.gguf")
    assert (logits_of(home, there, tmp_path / "ids.npy", tmp_path / "out") == before).all()
    (link,) = (link for link in (home / ".models").glob("*/model.gguf") if link.resolve() == there)
    with there.open("ab") as file:
        file.write(b"more")
    assert_refused(kvlab(home, "logits", "--model", link.parent, "--text", tmp_path / "ids.npy", "--out", tmp_path / "out"), "has changed since")


# Layers, width and the feed-forward part's of all of Llama 3.2 1B, and of two layers of 3.1 8B.
ONE_B, EIGHT_B = (16, 2048, 8192), (2, 4096, 14336)


@pytest.mark.parametrize(("size", "kind"), [(ONE_B, "Q4_0"), (ONE_B, "Q8_0"), (EIGHT_B, "Q4_0"), (EIGHT_B, "Q4_K")])
def test_weights_take_the_memory_of_the_file(size: tuple[int, int, int], kind: str, home: Path, tmp_path: Path) -> None:
    """In f32 they would take 5 and 3.8 GB."""
    layers, dim, feed = size
    model = tmp_path / "large.gguf"
    writer = gguf_models.ModelWriter(model, "llama", kind, False)
    for add, value in ((writer.add_block_count, layers), (writer.add_embedding_length, dim), (writer.add_feed_forward_length, feed), (writer.add_head_count, 32),
                       (writer.add_head_count_kv, 8), (writer.add_context_length, 8192), (writer.add_layer_norm_rms_eps, 1e-5)):  # fmt: skip
        add(value)
    matrices = {"token_embd": (128256, dim)}
    for layer in range(layers):
        sizes = {"attn_q": (dim, dim), "attn_k": (dim // 4, dim), "attn_v": (dim // 4, dim), "attn_output": (dim, dim), "ffn_gate": (feed, dim), "ffn_up": (feed, dim), "ffn_down": (dim, feed)}
        matrices |= {f"blk.{layer}.{name}": size for name, size in sizes.items()}
        for name in ("attn_norm", "ffn_norm"):
            writer.vector(f"blk.{layer}.{name}.weight", dim, mean=1.0)
    writer.vector("output_norm.weight", dim, mean=1.0)
    block = writer.blocks(kind, 256)
    for name, (rows, columns) in matrices.items():
        writer.add_tensor(f"{name}.weight", numpy.tile(block, (rows, columns // 256)), raw_dtype=gguf_models.Type[kind])
    gguf_models.finish(writer)
    numpy.save(tmp_path / "ids.npy", numpy.arange(4, dtype="<u4"))
    before = {path.name for path in (home / ".models").glob("*")}
    # A process of its own measures, since a child's peak is at least that of its parent, which has written the file.
    measure = "import os, sys; child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); _, status, usage = os.wait4(child, 0); print(status, usage.ru_maxrss)"
    words = ["logits", "--model", model, "--text", tmp_path / "ids.npy", "--out", tmp_path / "out"]
    done = kvlab(home, *words, command=(sys.executable, "-c", measure, PROGRAM))
    status, peak = map(int, done.stdout.split()[-2:])
    assert status == 0, done.stderr
    stored = model.stat().st_size
    assert 0.9 * stored < peak * 1024 < stored + (200 << 20)
    for made in (path for path in (home / ".models").iterdir() if path.name not in before and path.is_dir()):
        assert sum(file.lstat().st_size for file in made.iterdir()) < 1 << 20


def test_a_file_is_converted_once(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "once.gguf", "qwen3")
    (tmp_path / "text.txt").write_text("the thing and the other")
    logits_of(home, model, tmp_path / "text.txt", tmp_path / "first")
    before = sorted((home / ".models").iterdir())
    logits_of(home, model, tmp_path / "text.txt", tmp_path / "second")
    assert sorted((home / ".models").iterdir()) == before
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_channels_keep_the_files_order(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny.gguf", "llama")
    numpy.save(tmp_path / "ids.npy", numpy.random.default_rng(3).integers(0, 256, 320).astype("<u4"))
    divergence: dict[str, list[float]] = {"token(bits=4)": [], "nvfp4": []}  # codecs of rows and of blocks
    for order, said in (("file", "interleaved"), ("halves", "halves")):
        command = quality_run(model, tmp_path / "ids.npy", 4, "contiguous", *(f"contiguous/{codec}" for codec in divergence))
        done = kvlab(home, *command, "--set", f"workload.k_order={order}", "--out", tmp_path / order, "--table", "full")
        assert done.returncode == 0 and f"K's order: {said}" in done.stdout, done.stderr
        with (tmp_path / order / "cells.csv").open() as file:
            for row in csv.DictReader(file):
                assert row["k_order"] == said
                divergence.get(row["codec"], []).append(float(row["kl_mean"]))
    for codec, (one, other) in divergence.items():
        assert (abs(one / other - 1) < 0.02) == (codec != "nvfp4"), (codec, one, other)


def test_tables_read_no_weights(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny-one.gguf", "gemma3")
    before = set((home / ".models").glob("*/model.safetensors"))
    done = kvlab(home, "tables", "--model", model, "--lengths", "1024", "--variants", "contiguous/f16")
    assert done.returncode == 0, done.stderr
    assert "tiny-one" in done.stdout and "window of 5 tokens" in done.stdout
    assert set((home / ".models").glob("*/model.safetensors")) == before


def test_a_whole_run_reads_plain_text(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny.gguf", "llama")
    (tmp_path / "text.txt").write_text("the thing and the other thing, " * 40)
    command = quality_run(model, tmp_path / "text.txt", 2, "contiguous", "contiguous/q8_0")
    before = set((home / ".models").rglob("*"))
    dry = kvlab(home, *command, "--dry-run", "--json")
    assert "to convert once into .models" in json.loads(dry.stdout)["prepares"], dry.stderr
    assert set((home / ".models").rglob("*")) == before
    done = kvlab(home, *command, "--out", tmp_path / "out", "--no-plots")
    assert done.returncode == 0, done.stderr
    assert json.loads(kvlab(home, *command, "--dry-run", "--json").stdout)["all"]["peak_bytes"] > 0
    assert json.loads((tmp_path / "out/env.json").read_text())["model"]["name"] == "tiny"
    assert "contiguous/q8_0" in (tmp_path / "out/cells.csv").read_text()
    texts = ("experiment=generate", "generate.seq_len=24", "generate.batch=2", 'generate.variants=["contiguous/q8_0"]', "generate.prompt=12")
    done = kvlab(home, *command, *(word for key in texts for word in ("--set", key)), "--out", tmp_path / "texts", "--no-plots")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "texts/texts.csv").open() as file:
        assert all(row["prompt"].strip() in (tmp_path / "text.txt").read_text() and row["prompt"].count("th") > 1 for row in csv.DictReader(file))
    sample = kvlab(home, "sample", "--model", model, "--prompt", "the thing", "--tokens", "20", "--temperature", "0")
    assert sample.stdout.startswith("the thing") and sample.stdout.endswith("\n<|endoftext|>\n"), sample.stderr
    assert_refused(kvlab(home, "sample", "--model", model, "--tokens", "20"), "--prompt is needed", "puts no token before a text")


def refused_logits(home: Path, model: Path, *parts: str) -> None:
    assert_refused(kvlab(home, "logits", "--model", model, "--text", __file__, "--out", model.with_suffix(".out")), *parts)


@pytest.mark.parametrize("architecture, cut, said", [
    *(("llama", cut, "broken, truncated or not a GGUF file") for cut in (0, 3, 30, 700, 20000, -1)),
    *((name, None, f"architecture '{name}' is not implemented; known are llama, qwen2") for name in ("mamba", "bert")),
])
def test_a_truncated_or_unknown_file_is_refused(architecture: str, cut: int | None, said: str, home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "cut.gguf", architecture)
    model.write_bytes(model.read_bytes()[:cut])
    before = set((home / ".models").glob("*"))
    assert_refused(kvlab(home, "tables", "--model", model), "cut.gguf", said)
    refused_logits(home, model, "cut.gguf", said)
    assert set((home / ".models").glob("*")) <= before | {home / ".models/sha256", home / ".models/.lock"}


def test_a_tensor_without_a_place_is_refused(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "odd.gguf", "qwen3")
    data = model.read_bytes().replace(b"blk.1.attn_q_norm", b"blk.1.attn_x_norm")
    model.write_bytes(data)
    before = set((home / ".models").glob("*"))
    refused_logits(home, model, "blk.1.attn_x_norm.weight has no place")
    assert set((home / ".models").glob("*-*")) <= before


@pytest.mark.parametrize("old, new, said", [
    (b"tokenizer.ggml.model\x08\0\0\0\x04\0\0\0\0\0\0\0gpt2", b"tokenizer.ggml.model\x08\0\0\0\x04\0\0\0\0\0\0\0rwkv", "tokenizer 'rwkv' is not implemented"),
    (b"gpt-2", b"gpt-9", "pre-tokenizer 'gpt-9' is not implemented"),
    (MERGES[3].encode(), "xĠa".encode(), "which are no two tokens that make a third"),
])
def test_an_unknown_tokenizer_reads_ids_alone(old: bytes, new: bytes, said: str, home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "words.gguf", "llama")
    data = model.read_bytes()
    assert old in data and len(old) == len(new)
    model.write_bytes(data.replace(old, new))
    (tmp_path / "text.txt").write_text("the thing")
    assert_refused(kvlab(home, "logits", "--model", model, "--text", tmp_path / "text.txt", "--out", tmp_path / "out"), "words.gguf", said)
    numpy.save(tmp_path / "ids.npy", numpy.arange(5, dtype="<u4"))
    assert logits_of(home, model, tmp_path / "ids.npy", tmp_path / "out").shape[0] == 5


@pytest.mark.parametrize("architecture, options, said", [
    ("llama", {"logit_scale": 2.0}, "'llama.logit_scale' is 2.0, which kvlab does not read"),
    ("llama", {"attention__sliding_window": 4}, "'llama.attention.sliding_window' is 4, which kvlab does not read"),
    ("llama", {"rope__scaling__type": "yarn", "rope__scaling__yarn_ext_factor": 0.5}, "yarn_ext_factor' is 0.5; other than 1"),
    ("qwen3", {"block_count": 900_000_000}, "'qwen3.block_count' is 900000000, and it has no tensors of so many layers"),
    ("qwen3", {"biased": True}, "bias [64] is one that its config.json does not ask for"),
])
def test_what_is_stated_is_used_or_refused(architecture: str, options: dict[str, Any], said: str, home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "stated.gguf", architecture, **options)
    refused_logits(home, model, said)


@pytest.mark.skipif(not (DATA / "cases").is_dir(), reason="the real data are not here: KVLAB_DATA")
def test_files_made_after_public_reports(home: Path, tmp_path: Path) -> None:
    references = sorted((DATA / "cases").glob("*/*.ref.npy"))
    for reference in references:
        model = reference.with_name(reference.name.replace(".ref.npy", ".gguf"))
        worst = numpy.abs(logits_of(home, model, reference.parent / "ids.npy", tmp_path / "out") - numpy.load(reference)).max()
        assert worst < 2e-4, f"{model}: {worst}"
    assert len(references) >= 3


def test_a_full_disk_leaves_nothing(home: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "large.gguf", "llama", "MXFP4", rope__scaling__factor=3.0)
    words = ["logits", "--model", model, "--text", __file__, "--out", tmp_path / "out"]
    before = set((home / ".models").glob("*"))
    # A file may not grow past 100 KiB: the write fails as on a full disk.
    done = kvlab(home, *words, command=("sh", "-c", 'ulimit -f 100; exec "$@"', "sh", PROGRAM))
    assert done.returncode == 2 and "File too large" in done.stderr.splitlines()[-1]
    assert set((home / ".models").glob("*")) <= before | {home / ".models/sha256", home / ".models/.lock"}


@pytest.mark.skipif(not (SMOLLM2.exists() and DATA.is_dir()), reason="no models: ./kvlab models fetch smollm2-135m, and KVLAB_DATA")
def test_the_known_perplexity_of_smollm2(tmp_path: Path) -> None:
    text = tmp_path / "alice.txt"
    text.write_text((DATA / "text" / "alice_in_wonderland.txt").read_text())  # without its carriage returns
    done = kvlab(HOME, "logits", "--model", SMOLLM2, "--text", text, "--out", "/dev/full")
    assert done.returncode == 2
    ids = numpy.load(max((HOME / ".models").glob(f"*-{hashlib.sha256(text.read_bytes()).hexdigest()[:16]}-tokens-*/tokens.npy"), key=lambda path: path.stat().st_mtime))
    assert len(ids) == 37014
    numpy.save(tmp_path / "ids.npy", ids[3000:4024])
    logits = logits_of(HOME, SMOLLM2, tmp_path / "ids.npy", tmp_path / "out").astype(numpy.float64)
    top = logits.max(1, keepdims=True)
    losses = numpy.log(numpy.exp(logits - top).sum(1)) + top[:, 0] - logits[numpy.arange(1024), numpy.roll(ids[3000:4024], -1)]
    assert abs(numpy.exp(losses[:-1].mean()) - 27.096) < 0.002
    assert_same_logits(HOME, SMOLLM2, ids[3000:3064], tmp_path)
