"""A transformers model as a GGUF file, by the names of the gguf package, in the way of llama.cpp's converter."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3_text": "gemma3"}


def _pairs_side_by_side(rows: Any, heads: int) -> Any:
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _rope_keys(writer: gguf.GGUFWriter, config: Any) -> bool:
    rope = config.rope_parameters
    if "full_attention" in rope:
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        if rope["sliding_attention"]["rope_type"] != "default":
            return False
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "default":
        return True
    if rope["rope_type"] not in ("linear", "yarn") or {"mscale", "attention_factor"} & rope.keys():
        return False
    writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key in ("beta_fast", "beta_slow"):
            if key in rope:
                writer.add_float32(f"{writer.arch}.rope.scaling.yarn_{key}", rope[key])
        return bool(rope.get("truncate", True))
    return True


def write_gguf(model: Any, path: Path) -> bool:
    """False if GGUF has no place for something of this model, as llama.cpp reads it."""
    config = model.config
    architecture = ARCHITECTURES.get(config.model_type)
    gemma = config.model_type.startswith("gemma")
    window = getattr(config, "sliding_window", None) and "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
    if not architecture or (window and not gemma):
        return False
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if gemma and (config.query_pre_attn_scalar != head_dim or config.num_hidden_layers in (46, 62)):
        return False
    if getattr(config, "hidden_act", getattr(config, "hidden_activation", None)) != ("gelu_pytorch_tanh" if gemma else "silu"):
        return False
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if not _rope_keys(writer, config):
        return False
    if gemma:
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if getattr(config, key, None):
                writer.add_float32(f"{architecture}.{key}", getattr(config, key))
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    for name, weights in model.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        values = weights.numpy().astype(numpy.float32)
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            values = _pairs_side_by_side(values, config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored is None:
            return False
        writer.add_tensor(stored, numpy.ascontiguousarray(values + 1 if gemma and name.endswith("norm.weight") else values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return True
