"""A llama2.c model (legacy v0 file) and its tokenizer.bin as a Hugging Face folder: `./kvlab models convert`.

The model is seven int32 (dim, hidden_dim, layers, heads, kv heads, vocab size, sequence length) and then plain f32 tensors, the layers of
one tensor side by side; a negative vocabulary size says that the classifier is not the embedding (https://github.com/karpathy/llama2.c,
`legacy_export` in export.py). Rotary pairs are neighbours, theta is 10000, as in run.c, and weights keep their order and bits.
"""
from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy
from gguf_to_hugging_face import Array, write_safetensors
from refusal import Refusal
from sentence_piece import as_json, sentence_piece
from tokenizers import AddedToken, processors

_HEADER = struct.Struct("<7i")
_FIELDS = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_MARK = "<|endoftext|>"  # BOS, by which texts of several documents begin each


class _File:
    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what = path, what
        self.data = path.read_bytes()

    def refuse(self, reason: str) -> NoReturn:
        raise Refusal(f"{self.what} {self.path}: {reason}")


def _header(file: _File) -> dict[str, int]:
    if len(file.data) < _HEADER.size:
        file.refuse(f"found {len(file.data)} bytes, expected the header of a llama2.c legacy v0 file, {_HEADER.size}")
    header = dict(zip(_FIELDS, _HEADER.unpack_from(file.data)))
    for name, value in header.items():
        if not 1 <= (abs(value) if name == "vocab_size" else value) <= 1 << 20:
            file.refuse(f"header field {name} is {value}, expected 1 to {1 << 20} (a llama2.c legacy v0 file is needed)")
    dim, heads = header["dim"], header["n_heads"]
    if dim % heads or heads % header["n_kv_heads"] or dim // heads % 2:
        file.refuse(f"dim {dim}, n_heads {heads} and n_kv_heads {header['n_kv_heads']} do not divide, in rotary pairs")
    return header


def _tensors(file: _File, header: dict[str, int]) -> Iterator[tuple[str, str, Array]]:
    dim, hidden, layers, heads, kv_heads, vocabulary, tokens = header.values()
    kv, pairs = dim // heads * kv_heads, dim // heads // 2
    sizes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (abs(vocabulary), dim), "input_layernorm": (layers, dim), "self_attn.q_proj": (layers, dim, dim),
        "self_attn.k_proj": (layers, kv, dim), "self_attn.v_proj": (layers, kv, dim), "self_attn.o_proj": (layers, dim, dim),
        "post_attention_layernorm": (layers, dim), "mlp.gate_proj": (layers, hidden, dim), "mlp.down_proj": (layers, dim, hidden),
        "mlp.up_proj": (layers, hidden, dim), "model.norm": (dim,), "cos": (tokens, pairs), "sin": (tokens, pairs),
        "lm_head": (vocabulary < 0) * (-vocabulary, dim),
    }  # fmt: skip
    expected = _HEADER.size + 4 * sum(math.prod(size) for size in sizes.values() if size)
    if expected != len(file.data):
        file.refuse(f"its header makes {expected} bytes, found {len(file.data)} (a llama2.c legacy v0 file is needed)")
    at = _HEADER.size
    for name, size in sizes.items():
        if not size:
            continue
        array = numpy.frombuffer(file.data, "<f4", math.prod(size), at).reshape(size)
        at += array.nbytes
        if name in ("cos", "sin"):
            # Another theta's table would show most in the last row. Angles far out are rounded in f32.
            angles = (tokens - 1) * 10000.0 ** (-numpy.arange(pairs) / pairs)
            if not (abs(array[-1] - getattr(numpy, name)(angles)) <= 1e-2).all():
                file.refuse("its rotary table is not that of theta 10000")
        elif "." in name and name.split(".")[0] == "model" or name == "lm_head":
            yield f"{name}.weight", "F32", array
        else:
            yield from ((f"model.layers.{layer}.{name}.weight", "F32", array[layer]) for layer in range(layers))


def _config(header: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": header["dim"], "intermediate_size": header["hidden_dim"],
        "num_hidden_layers": header["n_layers"], "num_attention_heads": header["n_heads"], "num_key_value_heads": header["n_kv_heads"],
        "vocab_size": abs(header["vocab_size"]), "max_position_embeddings": header["seq_len"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_interleave": True, "hidden_act": "silu", "tie_word_embeddings": header["vocab_size"] > 0, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float32",
    }  # fmt: skip


def _pieces(file: _File, vocabulary: int) -> tuple[list[str], list[float]]:
    at, pieces, scores = 4, [], []
    try:
        for _ in range(vocabulary):
            score, length = struct.unpack_from("<fi", file.data, at)
            text = file.data[at + 8 : at + 8 + length]
            if length != len(text) or not math.isfinite(score):
                raise ValueError
            pieces.append(text.decode().replace(" ", "▁"))
            scores.append(score)
            at += 8 + length
    except (ValueError, struct.error):  # of UnicodeDecodeError, too
        file.refuse(f"piece {len(pieces)} of the model's {vocabulary} is broken or not there (truncated, or another model's tokenizer)")
    if at != len(file.data):
        file.refuse(f"{len(file.data) - at} bytes are left after the model's {vocabulary} pieces: this is another model's tokenizer")
    return pieces, scores


def _tokenizer(file: _File, vocabulary: int) -> str:
    """llama2.c's: the text after BOS and a space, and no <unk> for several unknown characters."""
    if vocabulary < 3:
        file.refuse(f"a vocabulary of {vocabulary} has no room for <unk>, BOS and EOS")
    pieces, scores = _pieces(file, vocabulary)
    pieces[:3] = ["<unk>", _MARK, "</s>"]
    bytes_too = pieces[3:259] == _BYTES
    types = [2, 3, 3] + [6 if bytes_too and number < 259 else 1 for number in range(3, vocabulary)]
    tokenizer = sentence_piece(pieces, scores, types, 0, prefix=True, fuse=False)
    tokenizer.add_special_tokens([AddedToken(_MARK, special=True, normalized=False, lstrip=True, rstrip=True),
                                  AddedToken("</s>", special=True, normalized=False)])  # fmt: skip
    tokenizer.post_processor = processors.TemplateProcessing(single=[_MARK, "$A"], special_tokens=[(_MARK, 1)])
    return as_json(tokenizer, scores)


def convert(model: Path, tokenizer: Path, folder: Path) -> None:
    """Writes config.json, model.safetensors and tokenizer.json into the folder. Raises Refusal."""
    weights = _File(model, "model")
    header = _header(weights)
    (folder / "tokenizer.json").write_text(_tokenizer(_File(tokenizer, "tokenizer"), abs(header["vocab_size"])), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", _tensors(weights, header), 9 * header["n_layers"] + 3)
    (folder / "config.json").write_text(json.dumps(_config(header), indent=1) + "\n")
