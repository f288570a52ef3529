"""SentencePiece's BPE: of all neighbours that make a piece, those of the best one are merged first, of equals the leftmost.

The package `tokenizers` ranks the two parts and not the piece, so that runs of 17 spaces come out otherwise (transformers#25069). Here a
text is cut into its pieces before the package's model sees it, which finds each in its vocabulary and merges nothing.
"""
from __future__ import annotations

import json
import re
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any

from tokenizers import NormalizedString, PreTokenizedString, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # tokenizer.ggml.token_type


def sentence_piece(pieces: list[str], scores: list[float], types: list[int], unknown: int, prefix: bool, fuse: bool = True) -> Tokenizer:
    """A tokenizer of pieces with scores: `prefix` begins a text with a space, `fuse` makes one <unk> of several."""
    vocabulary: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        vocabulary.setdefault(piece, number)  # a piece that occurs twice keeps its first id
    ordinary = {piece: score for piece, score, of in zip(pieces, scores, types) if of not in (UNKNOWN, CONTROL, USER_DEFINED, BYTE)}
    found = sorted((-ordinary[piece], vocabulary[piece], cut, piece) for piece in ordinary for cut in range(1, len(piece))
                   if piece[:cut] in ordinary and piece[cut:] in ordinary)  # fmt: skip
    merges = [(piece[:cut], piece[cut:]) for *_, cut, piece in found]
    bytes_too = types.count(BYTE) == 256
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=bytes_too, fuse_unk=fuse, unk_token=pieces[unknown]))
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip: list[Any] = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tokenizer


def as_json(tokenizer: Tokenizer, scores: list[float]) -> str:
    """A tokenizer.json with the scores of its pieces, by which equals are known; the package does not mind them."""
    content = json.loads(tokenizer.to_str())
    content["model"]["scores"] = scores
    return json.dumps(content, ensure_ascii=False)


class _Cutter:
    """Cuts normalised texts into pieces, by the merges of a tokenizer.json's model."""

    def __init__(self, model: dict[str, Any]) -> None:
        self.known: dict[str, int] = model["vocab"]
        scores = model.get("scores")
        self.ranks: dict[str, float] = {}
        self.parts = set()
        for merge in model["merges"]:
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            both = left + right
            self.ranks.setdefault(both, -scores[self.known[both]] if scores else len(self.ranks))
            self.parts.add((left, right))
        self.fuse = model.get("fuse_unk") and not model.get("byte_fallback")
        self.cut = lru_cache(1 << 16)(self._cut)

    def _cut(self, word: str) -> list[tuple[int, int]]:
        """Begin and end of each piece. Unknown characters side by side stay together where they become one <unk>."""
        symbols: list[str] = list(word)
        after = list(range(1, len(word) + 1))
        before = list(range(-1, len(word) - 1))

        def pair(at: int) -> tuple[float, int, str] | None:
            if at < 0 or after[at] == len(word) or (symbols[at], symbols[after[at]]) not in self.parts:
                return None
            both = symbols[at] + symbols[after[at]]
            return self.ranks[both], at, both

        waiting = [found for at in range(len(word)) if (found := pair(at))]
        heapify(waiting)
        while waiting:
            _, at, both = heappop(waiting)
            # A merge changes its symbols, so what still makes the same piece is still there.
            if not symbols[at] or after[at] == len(word) or symbols[at] + symbols[after[at]] != both:
                continue
            symbols[at], symbols[after[at]] = both, ""
            after[at] = after[after[at]]
            if after[at] < len(word):
                before[after[at]] = at
            for neighbour in (before[at], at):
                if found := pair(neighbour):
                    heappush(waiting, found)
        cuts: list[tuple[int, int]] = []
        unknown = False
        for at, symbol in enumerate(symbols):
            if not symbol:
                continue
            was, unknown = unknown, symbol not in self.known
            cuts.append((cuts.pop()[0] if was and unknown and self.fuse else at, after[at]))
        return cuts

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.split(lambda _, part: self._pieces(part))

    def _pieces(self, part: NormalizedString) -> list[NormalizedString]:
        cuts = self.cut(str(part.normalized))
        return [part] if len(cuts) == 1 else [part[begin:end] for begin, end in cuts]


def loaded(text: str) -> Tokenizer:
    """The tokenizer of a tokenizer.json; one of SentencePiece's merges as SentencePiece does. Nothing is truncated or padded, whatever
    the file says."""
    content = json.loads(text)
    content["truncation"] = content["padding"] = None
    model = content["model"]
    steps = json.dumps([content.get("normalizer"), content.get("pre_tokenizer")], ensure_ascii=False)
    if model.get("type") != "BPE" or "▁" not in steps:
        return Tokenizer.from_str(json.dumps(content))
    cutter = _Cutter(model)
    tokenizer = Tokenizer.from_str(json.dumps({**content, "model": {**model, "merges": [], "ignore_merges": True}}))
    # No piece goes on with a space behind other characters, else a text is one word.
    words = "▁+[^▁]*|[^▁]+" if not any(re.search("[^▁]▁", piece) for piece in cutter.ranks) else r"[\s\S]+"
    before = [tokenizer.pre_tokenizer] if tokenizer.pre_tokenizer else []
    custom = pre_tokenizers.PreTokenizer.custom(cutter)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*before, pre_tokenizers.Split(Regex(words), "isolated"), custom])
    return tokenizer
