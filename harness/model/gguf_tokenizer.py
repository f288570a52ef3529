"""The tokenizer that a GGUF file holds, as one of Hugging Face's `tokenizers`.

Two kinds: byte-level BPE (`gpt2`: tokens and merges, with a pre-tokenizer known by name) and SentencePiece's BPE (`llama`: pieces with
scores, of which the pair that makes the piece of the highest score is merged first).
"""
from __future__ import annotations

from typing import Any

from gguf_file import GgufFile
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6  # tokenizer.ggml.token_type

# Pre-tokenizers: regular expressions whose matches, and what is between them, are the words (llama.cpp, src/llama-vocab.cpp).
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS = r"\p{N}"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = _SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O = _CASED % (_SHORT + "?", _SHORT + "?") + r"|\p{N}{1,3}" + _CASED_TAIL
_TEKKEN = _CASED % ("", "") + r"|\p{N}" + _CASED_TAIL
_PRE_TOKENIZERS = {
    "default": [_GPT2],
    "gpt-2": [_GPT2],
    "smollm": [_DIGITS, _GPT2],
    "llama-bpe": [_LLAMA3],
    "llama3": [_LLAMA3],
    "llama-v3": [_LLAMA3],
    "smaug-bpe": [_LLAMA3],
    "qwen2": [_QWEN2],
    "deepseek-r1-qwen": [_QWEN2],
    "gpt-4o": [_GPT4O],
    "tekken": [_TEKKEN],
}
# Those that begin a text with BOS where the file does not say, take a word that is a token without merging, and compose characters.
_WITH_BOS = ("llama-bpe", "llama3", "llama-v3", "tekken")
_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "tekken")
_COMPOSED = ("qwen2", "deepseek-r1-qwen")


def tokenizer_of(file: GgufFile) -> Tokenizer:
    """Raises Refusal where the file has none, or one of another kind."""
    if not file.has("tokenizer.ggml.model"):
        file.refuse("it has no tokenizer; give token ids (.npy) in place of text")
    kind = file.get("tokenizer.ggml.model", str)
    if kind not in ("gpt2", "llama"):
        file.refuse(f"tokenizer '{kind}' is not implemented; known are gpt2 (byte-level BPE) and llama (SentencePiece)")
    tokens = file.get("tokenizer.ggml.tokens", list)
    types = file.get("tokenizer.ggml.token_type", list, [1] * len(tokens))
    if len(types) != len(tokens):
        file.refuse(f"its tokenizer has {len(tokens)} tokens and {len(types)} types of tokens")
    tokenizer = _byte_level(file, tokens) if kind == "gpt2" else _sentence_piece(file, tokens, types)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, of in zip(tokens, types) if of == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, of in zip(tokens, types) if of == _USER_DEFINED])
    _begin_with_bos(file, tokenizer, tokens, kind)
    return tokenizer


def _begin_with_bos(file: GgufFile, tokenizer: Tokenizer, tokens: list[str], kind: str) -> None:
    usual = kind == "llama" or file.get("tokenizer.ggml.pre", str, "default") in _WITH_BOS
    if not file.get("tokenizer.ggml.add_bos_token", bool, usual):
        return
    bos = file.get("tokenizer.ggml.bos_token_id", int, 1 if kind == "llama" else 11)
    if not 0 <= bos < len(tokens):
        file.refuse(f"'tokenizer.ggml.bos_token_id' is {bos}; its tokens are 0 to {len(tokens) - 1}")
    tokenizer.post_processor = processors.TemplateProcessing(single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)])


def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    pre = file.get("tokenizer.ggml.pre", str, "default")
    if pre not in _PRE_TOKENIZERS:
        file.refuse(f"pre-tokenizer '{pre}' is not implemented; known are {', '.join(_PRE_TOKENIZERS)}")
    merges = [tuple(merge.split(" ", 1)) for merge in file.get("tokenizer.ggml.merges", list)]
    vocabulary = _numbered(tokens)
    for pair in merges:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            file.refuse(f"its tokenizer merges '{' '.join(pair)[:40]}', which are no two tokens that make a third")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in _WHOLE_WORDS))
    if pre in _COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    words = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _PRE_TOKENIZERS[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _numbered(tokens: list[str]) -> dict[str, int]:
    """Ids by token. A token that occurs twice keeps its first id, and the others stay ids of texts that nothing produces."""
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens):
        vocabulary.setdefault(token, number)
    return vocabulary


def _sentence_piece(file: GgufFile, pieces: list[str], types: list[int]) -> Tokenizer:
    scores = file.get("tokenizer.ggml.scores", list)
    if len(scores) != len(pieces):
        file.refuse(f"its tokenizer has {len(pieces)} pieces and {len(scores)} scores")
    unknown = file.get("tokenizer.ggml.unknown_token_id", int, 0)
    if not 0 <= unknown < len(pieces):
        file.refuse(f"'tokenizer.ggml.unknown_token_id' is {unknown}; its pieces are 0 to {len(pieces) - 1}")
    fallback = types.count(_BYTE) == 256
    merges = _merges(pieces, scores, types)
    model = models.BPE(vocab=_numbered(pieces), merges=merges, byte_fallback=fallback, fuse_unk=True, unk_token=pieces[unknown])
    tokenizer = Tokenizer(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool, True)
    steps: list[Any] = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    strip: list[Any] = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return tokenizer


def _merges(pieces: list[str], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """Every way to make an ordinary piece of two others, the piece of the highest score first."""
    ordinary = {piece: score for piece, score, of in zip(pieces, scores, types) if of not in (_CONTROL, _USER_DEFINED, _BYTE)}
    numbers = _numbered(pieces)
    found = []
    for piece, score in ordinary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ordinary and right in ordinary:
                found.append((-score, len(left), len(right), numbers[left], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]
