"""A GGUF file as a Hugging Face folder: config.json, tokenizer.json, and model.safetensors with what is not a matrix.

Matrices stay where they are: model.gguf.json says at which byte of the file, model.gguf, each lies (harness/model/tensor_shards.cc reads
it). Those of types that kvlab does not expand are dequantised to f32 into model.safetensors. Rows of Q and K keep the file's order, in
which llama.cpp caches K. The architecture `llama` has rotary pairs side by side, (2i, 2i + 1), and config.json says so by
`rope_interleave`, as DeepSeek V3's does: transformers, whose Llama has them as the two halves of a head, must not read such a folder.
Gemma's norms lose the 1 that llama.cpp's converter adds.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from gguf_file import GgufFile
from numpy.typing import NDArray
from unread_keys import changes_nothing

Array = NDArray[Any]

# Types that kernels/cpu/weights/expand.cc reads.
_READ_IN_PLACE = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"}
_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Biases that files may have whatever their architecture, by the key with which a class of Hugging Face has them, all or none.
_BIASES = {"attention_bias": ("attn_q", "attn_k", "attn_v", "attn_output"), "mlp_bias": ("ffn_gate", "ffn_up", "ffn_down")}
_GEMMA_LAYER = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2_GLOBAL = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f", "output": "lm_head"}
_GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_GPT_OSS_LAYER = {
    **_LAYER,
    "attn_sinks": "self_attn.sinks",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.router",
    "ffn_gate_exps": "mlp.experts.gate",
    "ffn_up_exps": "mlp.experts.up",
    "ffn_down_exps": "mlp.experts.down",
}


@dataclass(frozen=True)
class Architecture:
    """How an architecture of GGUF becomes a family of harness/model/family.cc."""

    model_type: str
    layer: dict[str, str] = field(default_factory=lambda: _LAYER)
    others: dict[str, str] = field(default_factory=lambda: _GLOBAL)
    prefix: str = "model.layers."
    interleaved: bool = False  # rotary pairs are (2i, 2i + 1)
    norm_offset: bool = False  # norms have the 1 added
    transposed: bool = False  # matrices multiply from the right in Hugging Face's files
    window_pattern: int = 0  # of so many layers the last one has no window
    own_scale_layers: int = 0  # the one size of this many layers whose scores are scaled by hidden_size / heads
    biases: tuple[str, ...] = ("attention_bias",)  # keys of _BIASES that its class has


ARCHITECTURES = {
    "llama": Architecture("llama", interleaved=True, biases=("attention_bias", "mlp_bias")),
    "qwen2": Architecture("qwen2", biases=()),
    "qwen3": Architecture("qwen3"),
    "gemma2": Architecture("gemma2", _GEMMA_LAYER, norm_offset=True, window_pattern=2, own_scale_layers=46),
    "gemma3": Architecture("gemma3_text", _GEMMA_LAYER, norm_offset=True, window_pattern=6, own_scale_layers=62),
    "gpt2": Architecture("gpt2", _GPT2_LAYER, _GPT2_GLOBAL, "transformer.h.", transposed=True, biases=()),
    "gpt-oss": Architecture("gpt_oss", _GPT_OSS_LAYER, window_pattern=2, biases=()),
}


def architecture_of(file: GgufFile) -> Architecture:
    if file.get("split.count", int, 0) > 1:
        file.refuse(f"it is one of {file.get('split.count', int)} parts; `llama-gguf-split --merge` makes one file of them")
    if file.architecture not in ARCHITECTURES:
        file.refuse(f"architecture '{file.architecture}' is not implemented; known are {', '.join(ARCHITECTURES)}")
    if file.has(f"{file.architecture}.expert_count") and file.architecture != "gpt-oss":
        file.refuse(f"a mixture of experts of the architecture '{file.architecture}' is not implemented")
    return ARCHITECTURES[file.architecture]


def config_of(file: GgufFile) -> dict[str, Any]:
    """config.json's content."""
    architecture = architecture_of(file)
    for name in ("token_embd.weight", "output_norm.weight"):
        if name not in file.tensors:
            file.refuse(f"it has no tensor {name}")
    for name in file.tensors:
        _place(file, architecture, name)
    heads, hidden = file.get("{arch}.attention.head_count", int), file.get("{arch}.embedding_length", int)
    if heads < 1:
        file.refuse(f"'{file.architecture}.attention.head_count' is {heads}; expected at least 1")
    layers = file.get("{arch}.block_count", int)
    if f"blk.{layers - 1}.attn_norm.weight" not in file.tensors:
        file.refuse(f"'{file.architecture}.block_count' is {layers}, and it has no tensors of so many layers")
    experts = file.architecture == "gpt-oss"
    norm = "layer_norm_epsilon" if file.architecture == "gpt2" else "layer_norm_rms_epsilon"
    config: dict[str, Any] = {
        "model_type": architecture.model_type,
        "hidden_size": hidden,
        "intermediate_size": file.get(f"{{arch}}.{'expert_' if experts else ''}feed_forward_length", int),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("{arch}.attention.head_count_kv", int, heads),
        "head_dim": file.get("{arch}.attention.key_length", int, hidden // heads),
        "vocab_size": int(file.tensors["token_embd.weight"].shape[-1]),
        "max_position_embeddings": file.get("{arch}.context_length", int),
        "rms_norm_eps": file.get(f"{{arch}}.attention.{norm}", float),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "float32",
        "num_parameters": sum(int(t.n_elements) for name, t in file.tensors.items() if name != "rope_freqs.weight"),
    }
    if architecture.interleaved:
        config["rope_interleave"] = True
    if experts:
        config["num_local_experts"] = file.get("{arch}.expert_count", int)
        config["num_experts_per_tok"] = file.get("{arch}.expert_used_count", int)
    config.update({key: True for key in architecture.biases if _biased(file, key)})
    _check_heads(file, config["head_dim"])
    _add_windows(file, architecture, config)
    _add_rope(file, config)
    _add_scores(file, architecture, config)
    file.refuse_unread()
    return config


def _biased(file: GgufFile, key: str) -> bool:
    return any(name.split(".")[2:] == [part, "bias"] for name in file.tensors for part in _BIASES[key])


def _check_heads(file: GgufFile, head_dim: int) -> None:
    for key in ("attention.value_length", "rope.dimension_count"):
        value = file.get(f"{{arch}}.{key}", int, head_dim)
        if value != head_dim:
            file.refuse(f"'{file.architecture}.{key}' is {value}, and its keys have {head_dim} values; other than that is not implemented")


def _add_windows(file: GgufFile, architecture: Architecture, config: dict[str, Any]) -> None:
    if architecture.window_pattern == 0:
        return
    window, layers = file.get("{arch}.attention.sliding_window", int, 0), config["num_hidden_layers"]
    if window < 1:
        return
    key = f"{file.architecture}.attention.sliding_window_pattern"
    pattern = file.get(key, (int, list), architecture.window_pattern)
    slides = pattern if isinstance(pattern, list) else [i % pattern < pattern - 1 for i in range(layers)] if pattern > 0 else [True] * layers
    if len(slides) != layers:
        file.refuse(f"'{key}' has {len(slides)} values for {layers} layers")
    config["sliding_window"] = window
    config["layer_types"] = ["sliding_attention" if slide else "full_attention" for slide in slides]


def _add_rope(file: GgufFile, config: dict[str, Any]) -> None:
    if file.architecture == "gpt2":
        return
    # The second name is Ollama's.
    config["rope_theta"] = file.get("{arch}.rope.freq_base", float, file.get("{arch}.rope.global.freq_base", float, 10000.0))
    if file.architecture == "gemma3":
        config["rope_local_base_freq"] = file.get("{arch}.rope.freq_base_swa", float, file.get("{arch}.rope.local.freq_base", float, 10000.0))
    # llama.cpp takes a factor without a type for linear, reads an older key for it, and takes 0 for no factor.
    factor = file.get("{arch}.rope.scaling.factor", float, file.get("{arch}.rope.scale_linear", float, 0.0)) or 1.0
    kind = file.get("{arch}.rope.scaling.type", str, "linear")
    if kind not in ("none", "linear", "yarn"):
        file.refuse(f"rotary scaling '{kind}' is not implemented; known are none, linear and yarn")
    config["rope_scaling"] = {"rope_type": "default"}
    scales = kind == "yarn" or (kind == "linear" and factor != 1.0)
    if "rope_freqs.weight" in file.tensors:
        if scales:
            file.refuse(f"it has rope_freqs.weight and rotary scaling '{kind}'; both together are not implemented")
        config["rope_scaling"] = _llama3_scaling(file, config)
    elif scales:
        config["rope_scaling"] = _yarn_scaling(file, config, factor) if kind == "yarn" else {"rope_type": "linear", "factor": factor}


def _yarn_scaling(file: GgufFile, config: dict[str, Any], factor: float) -> dict[str, Any]:
    key = "{arch}.rope.scaling."
    if (mix := file.get(f"{key}yarn_ext_factor", float, 1.0)) != 1.0:
        file.refuse(f"'{file.architecture}.rope.scaling.yarn_ext_factor' is {mix}; other than 1 is not implemented")
    scaling = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": file.get(f"{key}original_context_length", int, config["max_position_embeddings"]),
        "beta_fast": file.get(f"{key}yarn_beta_fast", float, 32.0),
        "beta_slow": file.get(f"{key}yarn_beta_slow", float, 1.0),
        "truncate": file.architecture != "gpt-oss",
    }
    amplitude = file.get(f"{key}attn_factor", float, 1.0) * file.get(f"{key}yarn_attn_factor", float, 1.0)
    if amplitude != 1.0:
        scaling["attention_factor"] = amplitude * (1 + 0.1 * numpy.log(factor))
    return scaling


def _llama3_scaling(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    """Llama 3's scaling, of which a GGUF file holds the divisors of the frequencies in place of its four numbers."""
    divisors = file.values("rope_freqs.weight").astype(numpy.float64)
    scaling = {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    pairs = config["head_dim"] // 2
    turns = 8192 / (2 * numpy.pi * config["rope_theta"] ** (numpy.arange(pairs) / pairs))
    smooth = numpy.clip((turns - 1) / (4 - 1), 0, 1)
    expected = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    if divisors.shape != expected.shape or not numpy.allclose(divisors, expected, rtol=1e-3):
        file.refuse("the divisors in rope_freqs.weight are not those of Llama 3's scaling of 8192 positions; others are not implemented")
    return scaling


def _add_scores(file: GgufFile, architecture: Architecture, config: dict[str, Any]) -> None:
    """Scales and caps of scores and logits. A GGUF file has no query_pre_attn_scalar: llama.cpp knows it by the number of layers."""
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if file.has(f"{file.architecture}.{key}"):
            config[key] = file.get(f"{{arch}}.{key}", float)
    if architecture.own_scale_layers > 0:
        own = config["num_hidden_layers"] == architecture.own_scale_layers
        config["query_pre_attn_scalar"] = config["hidden_size"] // config["num_attention_heads"] if own else config["head_dim"]


def matrices_of(file: GgufFile) -> tuple[dict[str, Any], set[str]]:
    """model.gguf.json's tensors, by their names in Hugging Face's files, and those in GGUF's. Where Hugging Face's multiplies from the right,
    `shape` is that of its tensor, and each of its columns a row at `offsets`, which take turns."""
    architecture = architecture_of(file)
    index: dict[str, Any] = {}
    sources: set[str] = set()
    for source, tensor in file.tensors.items():
        name, _ = _place(file, architecture, source)
        kind, shape = tensor.tensor_type.name, [int(size) for size in reversed(tensor.shape)]
        if not name.endswith(".weight") or kind not in _READ_IN_PLACE or len(shape) < 2:
            continue
        by_rows = (architecture.transposed and name.startswith(architecture.prefix)) or ".experts." in name
        together = [tensor]
        if by_rows:
            shape[-2:] = shape[:-3:-1]
        if ".experts." in name:
            name = name.replace(".gate.weight", ".gate_up_proj").replace(".down.weight", ".down_proj")
            if name.endswith("_up_proj") and (up := file.tensors.get(source.replace("_gate_", "_up_"))) is not None:
                together.append(up)
                shape[-1] *= 2
            if name.endswith(".up.weight") or any(t.tensor_type != tensor.tensor_type or (t.shape != tensor.shape).any() for t in together):
                continue
            sources.update(t.name for t in together)
        sources.add(source)
        index[name] = {"dtype": kind, "shape": shape, "offsets": [int(t.data_offset) for t in together], "by_rows": by_rows}
    return index, sources


def tensors_of(file: GgufFile, elsewhere: set[str]) -> Iterator[tuple[str, str, Array]]:
    """Name, type and values of every tensor of model.safetensors, which are not `elsewhere`. A tensor without a place is refused."""
    architecture = architecture_of(file)
    experts: dict[str, Array] = {}
    biased = [part for key in architecture.biases if _biased(file, key) for part in _BIASES[key]]
    for source in file.tensors:
        name, short = _place(file, architecture, source)
        if not name:
            continue
        if short in biased and source.replace(".weight", ".bias") not in file.tensors:
            yield name.replace(".weight", ".bias"), "F32", numpy.zeros(file.tensors[source].shape[-1], "<f4")
        if source in elsewhere:
            continue
        array, kind = file.array(source), file.stored_as(source)
        if architecture.norm_offset and short.endswith("norm"):
            array, kind = file.values(source) - numpy.float32(1), "F32"
        if architecture.transposed and array.ndim == 2 and name.startswith(architecture.prefix):
            array = array.T
        if ".experts." in name:
            yield from _expert_tensors(name, kind, array, experts)
        else:
            yield name, kind, array


def _place(file: GgufFile, architecture: Architecture, source: str) -> tuple[str, str]:
    """A tensor's name in Hugging Face's files, and in GGUF's without its layer."""
    stem, _, suffix = source.rpartition(".")
    if changes_nothing("tensors", source):
        return "", ""
    if stem.startswith("blk.") and stem.count(".") == 2 and suffix in ("weight", "bias"):
        _, layer, short = stem.split(".")
        if short in architecture.layer:
            end = "" if short == "attn_sinks" else f".{suffix}"
            return f"{architecture.prefix}{layer}.{architecture.layer[short]}{end}", short
    elif stem in architecture.others:
        return f"{architecture.others[stem]}.{suffix}", stem
    file.refuse(f"tensor {source} has no place in the family '{architecture.model_type}'")


def _expert_tensors(name: str, kind: str, array: Array, waiting: dict[str, Array]) -> Iterator[tuple[str, str, Array]]:
    """gpt-oss has all experts in one tensor that multiplies from the right, in whose columns gate and up alternate."""
    stem, which, suffix = name.rsplit(".", 2)
    bias = suffix == "bias"
    if which == "down":
        yield f"{stem}.down_proj{'_bias' if bias else ''}", kind, array if bias else array.swapaxes(1, 2)
        return
    waiting[name] = array
    gate, up = (waiting.get(f"{stem}.{part}.{suffix}") for part in ("gate", "up"))
    if gate is None or up is None:
        return
    both = numpy.stack([gate, up], axis=2).reshape(gate.shape[0], -1, *gate.shape[2:])
    waiting.clear() if bias else [waiting.pop(f"{stem}.{part}.{suffix}") for part in ("gate", "up")]
    yield f"{stem}.gate_up_proj{'_bias' if bias else ''}", kind, both if bias else both.swapaxes(1, 2)


def write_safetensors(path: Path, tensors: Iterator[tuple[str, str, Array]], count: int) -> None:
    """At most `count` tensors, one after another: what is in memory is one of them. The header's room is filled in at the end."""
    room = 256 * (count + 1)
    header: dict[str, Any] = {}
    with path.open("wb") as out:
        out.seek(8 + room)
        for name, kind, array in tensors:
            begin = out.tell() - 8 - room
            out.write(numpy.ascontiguousarray(array).data)
            header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, out.tell() - 8 - room]}
        out.seek(0)
        out.write(room.to_bytes(8, "little") + json.dumps(header).encode().ljust(room))


def f32_bytes(file: GgufFile, elsewhere: set[str]) -> int:
    """About the size of model.safetensors."""
    return sum(int(t.n_elements) * 4 for name, t in file.tensors.items() if name not in elsewhere)
