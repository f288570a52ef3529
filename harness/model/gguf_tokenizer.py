"""The tokenizer that a GGUF file holds, as a tokenizer.json of Hugging Face's `tokenizers`.

Two kinds: byte-level BPE (`gpt2`: tokens and merges, with a pre-tokenizer known by name) and SentencePiece's BPE (`llama`: pieces with
scores).
"""
from __future__ import annotations

from gguf_file import GgufFile
from sentence_piece import CONTROL, USER_DEFINED, as_json, sentence_piece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

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


def tokenizer_of(file: GgufFile) -> str:
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
    scores = _scores(file, len(tokens)) if kind == "llama" else []
    tokenizer = _sentence_piece(file, tokens, scores, types) if kind == "llama" else _byte_level(file, tokens)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, of in zip(tokens, types) if of == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, of in zip(tokens, types) if of == USER_DEFINED])
    _begin_with_bos(file, tokenizer, tokens, kind)
    return as_json(tokenizer, scores) if kind == "llama" else tokenizer.to_str()


def _begin_with_bos(file: GgufFile, tokenizer: Tokenizer, tokens: list[str], kind: str) -> None:
    usual = kind == "llama" or file.get("tokenizer.ggml.pre", str) in _WITH_BOS
    if not file.get("tokenizer.ggml.add_bos_token", bool, usual):
        return
    bos = file.get("tokenizer.ggml.bos_token_id", int, 1 if kind == "llama" else 11)
    if not 0 <= bos < len(tokens):
        file.refuse(f"'tokenizer.ggml.bos_token_id' is {bos}; its tokens are 0 to {len(tokens) - 1}")
    tokenizer.post_processor = processors.TemplateProcessing(single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)])


def _byte_level(file: GgufFile, tokens: list[str]) -> Tokenizer:
    pre = file.get("tokenizer.ggml.pre", str, "default")
    if pre == "default":  # or no key: files of before llama.cpp knew it
        file.refuse("its tokenizer does not say how it cuts words ('tokenizer.ggml.pre'), and GPT-2's way is a guess: give the model's own "
                    "tokenizer.json as tokenizer, or token ids (.npy) as text")  # fmt: skip
    if pre not in _PRE_TOKENIZERS:
        file.refuse(f"pre-tokenizer '{pre}' is not implemented; known are {', '.join(_PRE_TOKENIZERS)}")
    merges = [tuple(merge.split(" ", 1)) for merge in file.get("tokenizer.ggml.merges", list)]
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens):
        vocabulary.setdefault(token, number)  # a token that occurs twice keeps its first id
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


def _scores(file: GgufFile, count: int) -> list[float]:
    scores = file.get("tokenizer.ggml.scores", list)
    if len(scores) != count:
        file.refuse(f"its tokenizer has {count} pieces and {len(scores)} scores")
    return scores


def _sentence_piece(file: GgufFile, pieces: list[str], scores: list[float], types: list[int]) -> Tokenizer:
    unknown = file.get("tokenizer.ggml.unknown_token_id", int, 0)
    if not 0 <= unknown < len(pieces):
        file.refuse(f"'tokenizer.ggml.unknown_token_id' is {unknown}; its pieces are 0 to {len(pieces) - 1}")
    return sentence_piece(pieces, scores, types, unknown, file.get("tokenizer.ggml.add_space_prefix", bool, True))
