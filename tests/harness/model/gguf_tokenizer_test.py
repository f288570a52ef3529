"""Tokenizers out of GGUF files against SentencePiece, and against byte-level BPE as its definition has it, on lines of many scripts."""
from __future__ import annotations

import io
import json
import os
import pydoc_data.topics
import random
import sys
import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy
import pytest
import sentencepiece
from gguf import GGUFWriter
from gguf_models import byte_vocabulary, finish
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HOME = Path(os.environ["KVLAB_HOME"])
sys.path.insert(0, str(HOME / "harness" / "model"))
import model_files  # noqa: E402
from gguf_file import GgufFile  # noqa: E402
from gguf_tokenizer import tokenizer_of  # noqa: E402
from refusal import Refusal  # noqa: E402
from sentence_piece import loaded  # noqa: E402
from tokenizer_keys import check_tokenizer  # noqa: E402

SMOLLM2 = HOME / ".models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
# Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Hangul, kana, Chinese, symbols, emoji.
SCRIPTS = [(0x41, 0x7B), (0xC0, 0x180), (0x391, 0x3CA), (0x410, 0x450), (0x5D0, 0x5EB), (0x621, 0x64B), (0x905, 0x94D), (0xE01, 0xE31),
           (0xAC00, 0xAD00), (0x3041, 0x30FF), (0x4E00, 0x4F00), (0x2190, 0x2200), (0x1F600, 0x1F640)]  # fmt: skip


def lines(count: int) -> list[str]:
    """English with its punctuation, runs of spaces and digits, and words of one script or another."""
    english = [line for text in pydoc_data.topics.topics.values() for line in text.splitlines() if line.strip()]
    rng = random.Random(3)
    found = []
    for i in range(count):
        words = rng.choice(english).split(" ")
        for _ in range(rng.randrange(4)):
            first, end = SCRIPTS[(i + rng.randrange(2)) % len(SCRIPTS)]
            words.insert(rng.randrange(len(words) + 1), "".join(chr(rng.randrange(first, end)) for _ in range(rng.randrange(1, 9))))
        words.insert(rng.randrange(len(words) + 1), rng.choice(["  ", "\t", "1234567", "½³", "don't", "WE'LL", "!?...", "", "\n\n"]))
        found.append(" ".join(words))
    return found


def words_of(text: str) -> Iterator[str]:
    """GPT-2's words: a contraction, or letters, digits or others with one space before them, or spaces less the last before a word."""

    def kind(c: str) -> str:
        return "s" if c.isspace() else {"L": "L", "N": "N"}.get(unicodedata.category(c)[0], "o")

    at = 0
    while at < len(text):
        contraction = next((c for c in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if text.startswith(c, at)), "")
        start = at + (text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "s")
        end = start + 1
        while end < len(text) and kind(text[end]) == kind(text[start]):
            end += 1
        if kind(text[start]) == "s" and end < len(text) and end - start > 1:
            end -= 1
        end = at + len(contraction) if contraction else end
        yield text[at:end]
        at = end


def digits_apart(text: str) -> Iterator[str]:
    """Every digit by itself, and what is between digits."""
    for is_digit, run in groupby(text, lambda c: unicodedata.category(c)[0] == "N"):
        yield from run if is_digit else ["".join(run)]


def merged(parts: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """The definition: of neighbours that can be one, those of the least rank are, the leftmost of equals, until none can be."""
    while ranked := [(found, at) for at, pair in enumerate(zip(parts, parts[1:])) if (found := rank(*pair)) is not None]:
        at = min(ranked)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    return parts


class ByteLevelBpe:
    def __init__(self, tokens: list[str], merges: list[str]) -> None:
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.letters = byte_vocabulary()[:256]

    def word(self, word: str) -> list[int]:
        parts = merged([self.letters[byte] for byte in word.encode()], lambda *pair: self.ranks.get(pair))
        return [self.ids[part] for part in parts]

    def encode(self, text: str, apart: bool) -> list[int]:
        return [i for piece in (digits_apart(text) if apart else [text]) for word in words_of(piece) for i in self.word(word)]


def trained_merges() -> list[str]:
    """A few hundred merges that texts of many scripts call for."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(lines(150), trainers.BpeTrainer(vocab_size=456, initial_alphabet=byte_vocabulary()[:256], show_progress=False))
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def write_tokenizer(path: Path, kind: str, tokens: list[str], **lists: list) -> GgufFile:
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    for name, values in lists.items():
        getattr(writer, f"add_{name}")(values)
    finish(writer)
    return GgufFile(path)


@pytest.mark.parametrize("pre, apart", [("gpt-2", False), ("smollm", True)])
def test_byte_level_bpe(pre: str, apart: bool, tmp_path: Path) -> None:
    merges = trained_merges()
    tokens = list(dict.fromkeys([*byte_vocabulary()[:256], *(merge.replace(" ", "") for merge in merges)]))
    ours = loaded(tokenizer_of(write_tokenizer(tmp_path / "bpe.gguf", "gpt2", tokens, tokenizer_pre=pre, token_merges=merges)))
    definition = ByteLevelBpe(tokens, merges)
    for line in lines(2000):
        ids = ours.encode(line).ids
        assert ids == definition.encode(line, apart), line
        assert ours.decode(ids) == line


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece(prefix: bool, tmp_path: Path) -> None:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(2000)), model_writer=trained, model_type="bpe", vocab_size=1500, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", add_dummy_prefix=prefix, remove_extra_whitespaces=False,
        num_threads=1, minloglevel=2,
    )  # fmt: skip
    reference = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    numbers = range(reference.get_piece_size())
    types = [2 if reference.is_unknown(i) else 3 if reference.is_control(i) else 6 if reference.is_byte(i) else 1 for i in numbers]
    ours = loaded(tokenizer_of(write_tokenizer(
        tmp_path / "pieces.gguf", "llama", [reference.id_to_piece(i) for i in numbers], token_types=types,
        token_scores=[reference.get_score(i) for i in numbers], add_space_prefix=prefix, add_bos_token=False,
    )))  # fmt: skip
    for line in lines(10000):
        ids = ours.encode(line).ids
        assert ids == reference.encode(line), line
        assert ours.decode(ids) == line


@pytest.mark.skipif(not SMOLLM2.exists(), reason="no models: ./kvlab models fetch smollm2-135m")
def test_smollm2_reads_as_its_merges_say() -> None:
    file = GgufFile(SMOLLM2)
    ours, definition = loaded(tokenizer_of(file)), ByteLevelBpe(file.get("tokenizer.ggml.tokens", list), file.get("tokenizer.ggml.merges", list))
    for line in lines(10000):
        assert ours.encode(line).ids == definition.encode(line, apart=True), line


@pytest.mark.parametrize("seed", range(5))
def test_of_equal_scores_the_leftmost_is_merged(seed: int, tmp_path: Path) -> None:
    """Runs of spaces, which are made in several ways, and pieces that have a score in common."""
    rng = random.Random(seed)
    runs = ["▁" * count for count in range(1, 17)] + ["ab", "ba", "aba", "▁a", *"ab"]
    ranks = {run: float(rng.randrange(1, 12)) for run in runs}
    file = write_tokenizer(
        tmp_path / "ties.gguf", "llama", ["<unk>", "<s>", *runs], token_types=[2, 3] + [1] * len(runs),
        token_scores=[0.0, 0.0, *(-rank for rank in ranks.values())], add_space_prefix=False, add_bos_token=False,
    )  # fmt: skip
    ours = loaded(tokenizer_of(file))
    for text in [*(" " * count for count in range(1, 60)), *("".join(rng.choices("ab ", k=30)) for _ in range(50))]:
        assert ours.encode(text).tokens == merged([*text.replace(" ", "▁")], lambda a, b: ranks.get(a + b)), text


@pytest.mark.parametrize("lists", [{}, {"tokenizer_pre": "default"}])
def test_a_pre_tokenizer_that_is_not_stated_is_not_guessed(lists: dict, tmp_path: Path) -> None:
    file = write_tokenizer(tmp_path / "old.gguf", "gpt2", byte_vocabulary(), token_merges=["t h"], **lists)
    with pytest.raises(Refusal, match=r"'tokenizer.ggml.pre'\), and GPT-2's way is a guess: give the model's own tokenizer.json"):
        tokenizer_of(file)


def test_texts_are_whole_and_their_bytes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Truncation and padding that a tokenizer.json was saved with are for training, and line ends are the file's."""
    monkeypatch.setattr(model_files, "MODELS", tmp_path / ".models")
    letters = [*map(chr, range(97, 123)), "\r", "\n"]
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    (tmp_path / "text.txt").write_bytes(b"abc\r\n" * 12)
    for change in (lambda: None, lambda: tokenizer.enable_truncation(16), lambda: tokenizer.enable_padding(length=96, pad_id=25)):
        change()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        assert numpy.load(model_files.tokens_of(tmp_path / "tokenizer.json", tmp_path / "text.txt")).tolist() == [0, 1, 2, 26, 27] * 12


@pytest.mark.parametrize("beside, said", [
    ({"add_bos_token": True, "bos_token": "a"}, "'add_bos_token' is true, and tokenizer.json does the opposite"),
    ({"add_bos_token": False, "bos_token": {"content": "a"}, "chat_template": "x", "split_special_tokens": False}, ""),
    ({"split_special_tokens": True}, "'split_special_tokens' is True, which kvlab does not read"),
    ([1], "is not a JSON object"),
])
def test_what_lies_beside_a_tokenizer_is_used_or_refused(beside: Any, said: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    try:
        check_tokenizer(tmp_path / "tokenizer.json", tokenizer)
        assert said == ""
    except Refusal as refusal:
        assert said and said in str(refusal)
