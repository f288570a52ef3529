"""Small random GGUF files of every architecture, and what such a file says of a text, by NumPy in f64.

The forward pass reads the arrays as the file has them: rotary pairs are neighbours where llama.cpp stores them so, and Gemma's norms
multiply by what is stored. It shares nothing with the conversion.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

LAYERS, HIDDEN, HEADS, HEAD_DIM, FEED, CONTEXT, EXPERTS = 7, 64, 4, 32, 96, 128, 4
KV_HEADS = 2
MERGES = ["t h", "th e", "i n", "Ġ a", "Ġ the", "a n", "an d"]
PIECES = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz.,!?äöß", "th", "the", "▁the", "an", "and", "▁▁", "▁and"]


def byte_vocabulary() -> list[str]:
    """GPT-2's 256 characters for bytes, then what merges make of them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
    return [*letters, *("".join(merge.split()) for merge in MERGES)]


def add_tokenizer(writer: GGUFWriter, kind: str, pre: str = "gpt-2") -> int:
    """Returns the size of the vocabulary."""
    if kind == "gpt2":
        tokens = ["<|endoftext|>", *byte_vocabulary()]
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(MERGES)
        types = [3] + [1] * (len(tokens) - 1)
    else:
        tokens = ["<unk>", "<s>", "</s>", *PIECES]
        types = [2, 3, 3, *(6 if piece.startswith("<0x") else 1 for piece in PIECES)]
        writer.add_token_scores([0.0] * 259 + [-float(len(PIECES) - i) for i in range(256, len(PIECES))])
        writer.add_bos_token_id(1)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    return len(tokens)


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class ModelWriter(GGUFWriter):
    """Writes random matrices as `kind`, or, `expanded`, as what those say in f32, and random vectors as f32."""

    def __init__(self, path: Path, architecture: str, kind: str, expanded: bool) -> None:
        super().__init__(path, architecture)
        self.expanded = expanded
        self.kind, self.rng = kind, numpy.random.default_rng(7)
        self.biased = False  # q, k, v and the feed-forward have biases whatever the architecture, and attention's output has none
        self.gpt2, self.gemma, self.oss = architecture == "gpt2", architecture.startswith("gemma"), architecture == "gpt-oss"

    def matrix(self, name: str, *shape: int) -> None:
        values = self.rng.normal(0, 0.3 / numpy.sqrt(shape[-1] / 8), shape).astype(numpy.float32)
        if self.kind.endswith("_K"):
            stored = self.blocks(self.kind, *shape)
        else:
            stored = values if self.kind == "F32" else quantize(values, Type[self.kind])
        if self.expanded:
            self.add_tensor(name, dequantize(stored, Type[self.kind]).astype(numpy.float32))
        else:
            self.add_tensor(name, stored, raw_dtype=Type[self.kind])

    def blocks(self, kind: str, *shape: int) -> Any:
        """Random codes, which the package does not make of values, under f16 scales at either end of a block."""
        values, size = GGML_QUANT_SIZES[Type[kind]]
        stored = self.rng.integers(0, 256, (*shape[:-1], shape[-1] // values, size), dtype=numpy.uint8)
        scales = self.rng.normal(0, 0.0005, (*stored.shape[:-1], 2)).astype(numpy.float16).view(numpy.uint8)
        stored[..., slice(-2, None) if kind == "Q6_K" else slice(0, 4)] = scales[..., : 2 if kind == "Q6_K" else 4]
        return stored.reshape(*shape[:-1], -1)

    def vector(self, name: str, *shape: int, mean: float = 0.0) -> None:
        self.add_tensor(name, (mean + self.rng.normal(0, 0.2, shape)).astype(numpy.float32))

    def norm(self, name: str, size: int = 0) -> None:
        self.vector(f"{name}.weight", size or HIDDEN, mean=1.0)
        if self.gpt2:
            self.vector(f"{name}.bias", size or HIDDEN)

    def product(self, name: str, rows: int, columns: int, bias: bool) -> None:
        self.matrix(f"{name}.weight", rows, columns)
        if bias:
            self.vector(f"{name}.bias", rows)

    def metadata(self, more: dict[str, Any]) -> None:
        self.add_block_count(LAYERS)
        self.add_embedding_length(HIDDEN)
        self.add_head_count(HEADS)
        self.add_context_length(CONTEXT)
        if self.oss:
            self.add_expert_feed_forward_length(FEED)
            self.add_expert_count(EXPERTS)
            self.add_expert_used_count(2)
        else:
            self.add_feed_forward_length(FEED)
        if self.gpt2:
            self.add_layer_norm_eps(1e-5)
        else:
            self.add_head_count_kv(KV_HEADS)
            self.add_key_length(HEAD_DIM)
            self.add_value_length(HEAD_DIM)
            self.add_layer_norm_rms_eps(1e-5)
            if "rope__global__freq_base" not in more:
                self.add_rope_freq_base(5000.0)
        if self.gemma or self.oss:
            self.add_sliding_window(5)
        for key, value in more.items():
            add = self.add_float32 if isinstance(value, float) else self.add_string if isinstance(value, str) else self.add_uint32
            add(f"{self.arch}.{key.replace('__', '.')}", value)

    def layer(self, block: str) -> None:
        for norm in ["attn_norm", *([] if self.oss else ["ffn_norm"]), *(["post_attention_norm"] if self.gemma or self.oss else [])]:
            self.norm(block + norm)
        if self.gemma:
            self.norm(f"{block}post_ffw_norm")
        width, kv = (HIDDEN, HIDDEN) if self.gpt2 else (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM)
        if self.gpt2:
            self.product(f"{block}attn_qkv", 3 * HIDDEN, HIDDEN, True)
        else:
            for part, rows in (("q", width), ("k", kv), ("v", kv)):
                self.product(f"{block}attn_{part}", rows, HIDDEN, self.arch == "qwen2" or self.oss or self.biased)
        self.product(f"{block}attn_output", HIDDEN, width, self.gpt2 or self.oss)
        if self.arch in ("qwen3", "gemma3"):
            self.norm(f"{block}attn_q_norm", HEAD_DIM)
            self.norm(f"{block}attn_k_norm", HEAD_DIM)
        if self.oss:
            self.vector(f"{block}attn_sinks.weight", HEADS)
            self.product(f"{block}ffn_gate_inp", EXPERTS, HIDDEN, True)
        for part, rows, columns in (("gate", FEED, HIDDEN), ("up", FEED, HIDDEN), ("down", HIDDEN, FEED)):
            if self.oss:
                self.matrix(f"{block}ffn_{part}_exps.weight", EXPERTS, rows, columns)
                self.vector(f"{block}ffn_{part}_exps.bias", EXPERTS, rows)
            elif part != "gate" or not self.gpt2:
                self.product(f"{block}ffn_{part}", rows, columns, self.gpt2 or self.biased)


def write_model(
    path: Path, architecture: str, kind: str = "F32", tokenizer: str = "gpt2", pre: str = "gpt-2", biased: bool = False, expanded: bool = False, **metadata: Any
) -> Path:
    """A model whose matrices are stored as `kind`, `expanded` to f32; `metadata` are more keys of the architecture, with __ for a dot."""
    writer = ModelWriter(path, architecture, kind, expanded)
    writer.biased = biased
    vocabulary = add_tokenizer(writer, tokenizer, pre)
    writer.metadata(metadata)
    writer.matrix("token_embd.weight", vocabulary, HIDDEN)
    writer.norm("output_norm")
    if writer.gpt2:
        writer.matrix("position_embd.weight", CONTEXT, HIDDEN)
    if architecture in ("llama", "gpt-oss"):
        writer.matrix("output.weight", vocabulary, HIDDEN)
    for layer in range(LAYERS):
        writer.layer(f"blk.{layer}.")
    finish(writer)
    return path


class Oracle:
    """The logits of a GGUF file's model."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(numpy.float64) for t in reader.tensors}
        self.architecture = reader.fields["general.architecture"].contents()
        self.fields = reader.fields
        self.gemma = self.architecture.startswith("gemma")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.hidden = self.key("embedding_length")
        self.head_dim = self.key("attention.key_length", self.hidden // self.heads)
        self.epsilon = self.key("attention.layer_norm_rms_epsilon", self.key("attention.layer_norm_epsilon"))

    def key(self, name: str, fallback: Any = None) -> Any:
        field = self.fields.get(f"{self.architecture}.{name}")
        return field.contents() if field else fallback

    def norm(self, x: Any, name: str) -> Any:
        bias = self.weights.get(f"{name}.bias")
        if bias is not None:
            x = x - x.mean(-1, keepdims=True)
        y = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[f"{name}.weight"]
        return y if bias is None else y + bias

    def product(self, x: Any, name: str) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def slides(self, layer: int) -> bool:
        period = {"gemma2": 2, "gpt-oss": 2, "gemma3": 6}.get(self.architecture, 0)
        return period > 0 and (layer + 1) % period != 0

    def rotate(self, x: Any, slides: bool) -> Any:
        """x [n, heads, head_dim]."""
        pairs = numpy.arange(self.head_dim // 2)
        local = self.architecture == "gemma3" and slides
        theta = self.key("rope.local.freq_base", 10000.0) if local else self.key("rope.freq_base", self.key("rope.global.freq_base", 10000.0))
        turns = theta ** (-pairs / len(pairs))
        if self.key("rope.scaling.type", "linear") == "linear" and not local:
            turns = turns / self.key("rope.scaling.factor", self.key("rope.scale_linear", 1.0))
        if "rope_freqs.weight" in self.weights:
            turns = turns / self.weights["rope_freqs.weight"]
        angles = numpy.arange(len(x))[:, None, None] * turns
        if self.architecture == "llama":
            first, second = x[..., 0::2], x[..., 1::2]
        else:
            first, second = x[..., : len(pairs)], x[..., len(pairs) :]
        a, b = first * numpy.cos(angles) - second * numpy.sin(angles), first * numpy.sin(angles) + second * numpy.cos(angles)
        return numpy.stack([a, b], -1).reshape(x.shape) if self.architecture == "llama" else numpy.concatenate([a, b], -1)

    def attention(self, x: Any, layer: int) -> Any:
        block, n = f"blk.{layer}.", len(x)
        if self.architecture == "gpt2":
            q, k, v = numpy.split(self.product(x, f"{block}attn_qkv"), 3, axis=1)
        else:
            q, k, v = (self.product(x, f"{block}attn_{part}") for part in "qkv")
        q, k, v = (part.reshape(n, -1, self.head_dim) for part in (q, k, v))
        if f"{block}attn_q_norm.weight" in self.weights:
            q, k = self.norm(q, f"{block}attn_q_norm"), self.norm(k, f"{block}attn_k_norm")
        if self.architecture != "gpt2":
            q, k = self.rotate(q, self.slides(layer)), self.rotate(k, self.slides(layer))
        at = numpy.arange(n)
        seen = at[None, :] <= at[:, None]
        if self.slides(layer):
            seen &= at[None, :] > at[:, None] - self.key("attention.sliding_window")
        out = numpy.empty_like(q)
        for head in range(self.heads):
            of = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, of].T / numpy.sqrt(self.head_dim)
            if cap := self.key("attn_logit_softcapping"):
                scores = cap * numpy.tanh(scores / cap)
            scores = numpy.where(seen, scores, -numpy.inf)
            sink = self.weights[f"{block}attn_sinks.weight"][head] if f"{block}attn_sinks.weight" in self.weights else -numpy.inf
            top = numpy.maximum(scores.max(1, keepdims=True), sink)
            weights = numpy.exp(scores - top)
            out[:, head] = weights @ v[:, of] / (weights.sum(1, keepdims=True) + numpy.exp(sink - top))
        return self.product(out.reshape(n, -1), f"{block}attn_output")

    def feed_forward(self, x: Any, layer: int) -> Any:
        block = f"blk.{layer}.ffn_"
        if self.architecture == "gpt-oss":
            return self.experts(x, block)
        up = self.product(x, f"{block}up")
        if self.architecture == "gpt2":
            return self.product(gelu(up), f"{block}down")
        gate = self.product(x, f"{block}gate")
        return self.product((gelu(gate) if self.gemma else silu(gate)) * up, f"{block}down")

    def experts(self, x: Any, block: str) -> Any:
        scores = self.product(x, f"{block}gate_inp")
        out = numpy.zeros_like(x)
        for t, row in enumerate(x):
            chosen = numpy.argsort(-scores[t])[: self.key("expert_used_count")]
            shares = numpy.exp(scores[t][chosen] - scores[t][chosen].max())
            for expert, share in zip(chosen, shares / shares.sum()):
                gate, up = (self.weights[f"{block}{p}_exps.weight"][expert] @ row + self.weights[f"{block}{p}_exps.bias"][expert] for p in ("gate", "up"))
                gate, up = numpy.minimum(gate, 7), numpy.clip(up, -7, 7)
                inner = gate / (1 + numpy.exp(-1.702 * gate)) * (up + 1)
                out[t] += share * (self.weights[f"{block}down_exps.weight"][expert] @ inner + self.weights[f"{block}down_exps.bias"][expert])
        return out

    def logits(self, ids: Any) -> Any:
        x = self.weights["token_embd.weight"][ids]
        if self.gemma:
            x = x * numpy.sqrt(self.hidden)
        if self.architecture == "gpt2":
            x = x + self.weights["position_embd.weight"][: len(ids)]
        for layer in range(self.key("block_count")):
            block = f"blk.{layer}."
            added = self.attention(self.norm(x, f"{block}attn_norm"), layer)
            x = x + (self.norm(added, f"{block}post_attention_norm") if self.gemma else added)
            before = "post_attention_norm" if self.architecture == "gpt-oss" else "ffn_norm"
            added = self.feed_forward(self.norm(x, f"{block}{before}"), layer)
            x = x + (self.norm(added, f"{block}post_ffw_norm") if self.gemma else added)
        head = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        logits = self.norm(x, "output_norm") @ self.weights[head].T
        cap = self.key("final_logit_softcapping")
        return cap * numpy.tanh(logits / cap) if cap else logits


def silu(x: Any) -> Any:
    return x / (1 + numpy.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x**3)))
