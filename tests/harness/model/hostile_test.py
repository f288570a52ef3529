"""Files that somebody broke: whatever a stranger's GGUF, safetensors, .vq, tokenizer.json or config.json holds, kvlab reads it or
refuses it in one line, within 10 s and 1 GiB.

Valid files are broken by KVLAB_SEED for KVLAB_HOSTILE_SECONDS, and each is read by a process of its own: by the program, or, since
importing takes longer than reading, by the Python readers in a fork of this process.
"""
from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
from gguf_models import MERGES, byte_vocabulary, write_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
sys.path.insert(0, str(HOME / "harness" / "model"))
MOST_SECONDS, MOST_BYTES = 10, 1 << 30
WORDS = [b"\0", b"\xff" * 4, b"\xff" * 8, b"\n", b"\x1b[2J", b"\xc3\x28", b"-1", b"1e999", b"null", b"[]", b"{}", b'"', b"9" * 30, b"\0\0\0\x80"]
VALUES: list[Any] = [None, -1, 0, 1 << 31, 1 << 62, 1.5, 1e300, True, "", "\n\x1b[31m", "x" * 5000, [], {}, [[[1]]], {"a": [1]}]
KEYS = """block_count embedding_length attention__head_count attention__head_count_kv attention__key_length attention__value_length
    feed_forward_length expert_feed_forward_length context_length expert_count expert_used_count attention__sliding_window
    attention__layer_norm_rms_epsilon rope__freq_base rope__dimension_count rope__scaling__type rope__scaling__factor
    rope__scaling__original_context_length vocab_size""".split()
NUMBERS: list[Any] = [0, 1, 3, 7, 1 << 31, (1 << 32) - 1, -1.0, 0.0, float("nan"), float("inf"), "", "yarn", "\n\x1b[31m", "x" * 5000]
READERS = {"seed.gguf": "folder", "gpt2.gguf": "folder", "gpt-oss.gguf": "folder", "gemma3.gguf": "folder", "tokenizer.json": "tokens"}


def broken(valid: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, cut out, put in or doubled: near the beginning, where the numbers are, and behind names, where theirs are."""
    data, numbers = bytearray(valid), [name.end() for name in re.finditer(rb"[a-z0-9]\.[a-z_]+", valid[: 1 << 16])]
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(1, min(len(data), draw.choice([64, 512, 4096, 16384, len(data)]))))
        if numbers and draw.random() < 0.6:
            at = draw.choice(numbers) + draw.choice([0, 4, 8, 12, 16])
        word, length = draw.choice(WORDS), draw.choice([1, 2, 4, 8, 50])
        new, old = draw.choice([(bytes([draw.choice([draw.randrange(256), draw.randrange(20)])]), 1), (word, len(word)), (word, 0), (b"", length), (data[at : at + length], 0)])
        data[at : at + old] = new
    return bytes(data[: draw.randrange(len(data) + 1)] if draw.random() < 0.03 else data)


def write_broken(valid: Path, file: Path, draw: random.Random) -> None:
    if valid.suffix == ".gguf" and draw.random() < 0.4:  # numbers that do not fit the tensors
        write_seed(file, **{draw.choice(KEYS): draw.choice(NUMBERS) for _ in range(2)})
        return
    change = other_value if valid.suffix == ".json" and draw.random() < 0.7 else broken
    file.write_bytes(change(valid.read_bytes(), draw))


def write_seed(file: Path, **metadata: Any) -> None:
    architecture = file.stem.replace("seed", "llama")
    write_model(file, architecture, tokenizer="llama" if architecture == "gemma3" else "gpt2", **metadata)


def other_value(valid: bytes, draw: random.Random) -> bytes:
    """JSON in which one value, wherever it is, is another."""
    at = tree = json.loads(valid)
    while True:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not isinstance(at[key], (dict, list)) or not at[key] or draw.random() < 0.1:
            at[key] = draw.choice(VALUES)
            return json.dumps(tree).encode()
        at = at[key]


def valid_files(folder: Path) -> list[Path]:
    import model_files

    model_files.MODELS = folder / "models"
    for name in READERS:
        if name.endswith(".gguf"):
            write_seed(folder / name)
    vocabulary = {token: number for number, token in enumerate(byte_vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in map(str.split, MERGES)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    first = next(iter(vocabulary))
    tokenizer.post_processor = processors.TemplateProcessing(single=[first, "$A"], special_tokens=[(first, 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "text.txt").write_text("the thing and the other thing\n")
    numpy.save(folder / "ids.npy", numpy.arange(8, dtype="<u4"))
    numpy.save(folder / "many.npy", numpy.arange(512, dtype="<u4") % 250)
    (folder / "valid").symlink_to(model_files.folder_of(folder / "seed.gguf"))
    options = "--codebooks 1 --from 0 --tokens 512 --window 128".split()
    subprocess.run([PROGRAM, "calibrate", folder / "valid", "--text", folder / "many.npy", *options, "--out", folder / "seed.vq"], check=True)
    return [*(folder / name for name in READERS), folder / "valid/config.json", folder / "valid/model.gguf.json", folder / "valid/model.safetensors", folder / "seed.vq"]


def read(file: Path, folder: Path) -> int:
    """Reads a broken file in this process, or becomes the program that does."""
    import model_files

    if file.name in READERS:
        more = [str(folder / "text.txt")] if READERS[file.name] == "tokens" else []
        return model_files.reported(lambda: model_files.ACTIONS[READERS[file.name]](str(file), *more), sys.stdout)
    words = ["logits", "--model", str(file.parent), "--text", str(folder / "ids.npy"), "--out", str(folder / "out")]
    if file.suffix == ".vq":
        words = ["tables", "--model", str(folder / "valid/config.json"), "--lengths", "128"]
        words += ["--variants", f"contiguous/vq(bits=1,file={file})/full(positions=cache)"]
    return os.execv(PROGRAM, [PROGRAM, *words])


def wrong_with(file: Path, folder: Path) -> str:
    """How kvlab takes a file badly; empty if it does not."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
            said = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1), os.dup2(said, 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
            code = read(file, folder)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    _, status, usage = os.wait4(child, 0)
    code, text = os.waitstatus_to_exitcode(status), (folder / "said.txt").read_bytes().decode(errors="replace")
    lines = [line for line in text.split("\n")[:-1] if not line.startswith(("kvlab: converting ", "kvlab: tokenising "))]
    if code not in (0, 2) or (code == 2 and len(lines) != 1):
        return f"exit code {code}, {len(lines)} lines: {text[-1500:]}"
    if any(ord(c) < 32 or 127 <= ord(c) < 160 for line in lines for c in line):
        return f"control characters: {text[:500]!r}"
    return "" if usage.ru_maxrss * 1024 < MOST_BYTES else f"{usage.ru_maxrss} KiB of memory"


def test_broken_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    seed, seconds = os.environ.get("KVLAB_SEED", "0"), float(os.environ.get("KVLAB_HOSTILE_SECONDS", "10"))
    files, counts = valid_files(tmp_path), Counter[str]()
    place = tmp_path / "broken"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = sum(counts.values())
        valid, draw = files[number % len(files)], random.Random(f"{seed}-{number}")
        place.mkdir(exist_ok=True)
        for other in [*place.iterdir()]:
            other.unlink()
        if valid.parent.name == "valid":
            for whole in valid.parent.iterdir():
                (place / whole.name).symlink_to(whole)
            (place / valid.name).unlink()
        file = place / valid.name
        write_broken(valid, file, draw)
        wrong = wrong_with(file, tmp_path)
        assert not wrong, f"{file}, number {number} of seed {seed}: {wrong}"
        counts[valid.name] += 1
    print(dict(counts))
    assert min(counts[valid.name] for valid in files) > 0
