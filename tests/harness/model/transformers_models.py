"""Writes small random models as Hugging Face has them, some tokens, and the logits that transformers gives for those.

    python tests/harness/model/transformers_models.py FOLDER

FOLDER/CASE holds the model, tokens.npy and logits.f32 ([tokens, vocabulary], raw f32) of each case.
"""
from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config

TOKENS = 48
SHAPE: dict[str, Any] = dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=97,
    max_position_embeddings=64,
    tie_word_embeddings=False,
)
LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=24,
)
# Settings besides a config: the type of the weights, and the largest file.
CASES: dict[str, tuple[PretrainedConfig, torch.dtype, str]] = {
    "llama": (LlamaConfig(**SHAPE), torch.float32, "1GB"),
    "llama_mha_tied_theta": (
        LlamaConfig(**{**SHAPE, "num_key_value_heads": 8, "tie_word_embeddings": True}, rope_theta=500000.0),
        torch.float32,
        "1GB",
    ),
    "llama_bias_llama3": (LlamaConfig(**SHAPE, attention_bias=True, rope_scaling=LLAMA3), torch.float32, "1GB"),
    "llama_linear": (
        LlamaConfig(**SHAPE, rope_scaling={"type": "linear", "factor": 4.0}, rms_norm_eps=1e-3),
        torch.float32,
        "1GB",
    ),
    "llama_f16_shards": (LlamaConfig(**SHAPE), torch.float16, "40KB"),
    "llama_bf16_tied": (LlamaConfig(**{**SHAPE, "tie_word_embeddings": True}), torch.bfloat16, "1GB"),
    "mistral_window_head_dim": (MistralConfig(**SHAPE, head_dim=16, sliding_window=12), torch.float32, "1GB"),
    "mistral_bf16_shards": (MistralConfig(**SHAPE, sliding_window=None), torch.bfloat16, "40KB"),
    "qwen2": (Qwen2Config(**SHAPE, rope_theta=1e6), torch.float32, "1GB"),
}


def randomise(model: torch.nn.Module) -> None:
    """Weights so large that every part of the model matters to the logits; norms and biases too."""
    with torch.no_grad():
        for name, weights in model.named_parameters():
            spread = 1.0 if name.endswith("embed_tokens.weight") else 0.15
            weights.copy_(spread * torch.randn_like(weights) + (1.0 if "norm" in name else 0.0))


def write_case(folder: Path, config: PretrainedConfig, dtype: torch.dtype, largest_file: str) -> None:
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomise(model)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights.to(dtype).float())
    # A copy, since to() would round the rotary frequencies too.
    copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=largest_file)
    tokens = torch.randint(0, config.vocab_size, (1, TOKENS))
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0]
    numpy.save(folder / "tokens.npy", tokens[0].numpy())
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")


def main() -> None:
    for index, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(index)
        write_case(Path(sys.argv[1]) / name, *case)


if __name__ == "__main__":
    main()
