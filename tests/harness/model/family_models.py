"""Makes the logits that families_test.cc holds kvlab's forward pass against: small models of each family, run by transformers.

    python3 -m venv HF; HF/bin/pip install torch transformers safetensors
    HF/bin/python tests/harness/model/family_models.py tests/harness/model/families

writes cases.json (versions; of each case its config.json and the shapes of its tensors) and logits.safetensors
([tokens, vocabulary] a case). Weights are not written: both sides make them, from the tensor's name and the element's number.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

TOKENS = 40
SHAPE: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=29,
    max_position_embeddings=64, rms_norm_eps=1e-6,
)  # fmt: skip


def family(model_type: str, architecture: str, **own: Any) -> dict[str, Any]:
    """The keys in common, and those of the family."""
    return {**SHAPE, "model_type": model_type, "architectures": [architecture], **own}


GEMMA2 = family(
    "gemma2", "Gemma2ForCausalLM", hidden_activation="gelu_pytorch_tanh", sliding_window=8, query_pre_attn_scalar=24,
    attn_logit_softcapping=3.0, final_logit_softcapping=5.0, rope_theta=10000.0,
)  # fmt: skip
GEMMA3 = family(
    "gemma3_text", "Gemma3ForCausalLM", num_hidden_layers=4, hidden_activation="gelu_pytorch_tanh", sliding_window=8,
    sliding_window_pattern=3, query_pre_attn_scalar=24, rope_theta=1e6, rope_local_base_freq=100.0,
    rope_scaling=dict(rope_type="linear", factor=8.0),
)  # fmt: skip
GPT2 = dict(
    model_type="gpt2", architectures=["GPT2LMHeadModel"], activation_function="gelu_new", n_embd=32, n_layer=3, n_head=4, n_positions=64,
    n_ctx=64, vocab_size=29, layer_norm_epsilon=1e-5,
)  # fmt: skip
YARN = dict(rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, original_max_position_embeddings=32, truncate=False)
GPT_OSS = family(
    "gpt_oss", "GptOssForCausalLM", sliding_window=8, num_local_experts=4, num_experts_per_tok=2, attention_bias=True, swiglu_limit=0.8,
    rope_theta=1000.0, rope_scaling=YARN, tie_word_embeddings=False,
)  # fmt: skip
NANOCHAT = family("nanochat", "NanoChatForCausalLM", final_logit_softcapping=5.0)
QWEN35 = family(
    "qwen3_5_text", "Qwen3_5ForCausalLM", num_hidden_layers=3, full_attention_interval=2, linear_conv_kernel_dim=3, linear_num_key_heads=2,
    linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=12, attn_output_gate=True,
    rope_parameters=dict(rope_type="default", rope_theta=100.0, mrope_section=[11, 11, 10], mrope_interleaved=True),
)  # fmt: skip
QWEN = dict(SHAPE, rope_theta=1e6, sliding_window=8, max_window_layers=1, tie_word_embeddings=False)
# The config.json of each, as released models have theirs, which is older than the library. "_saved": as the library
# writes it today.
CASES: dict[str, dict[str, Any]] = {
    "llama_saved": dict(SHAPE, model_type="llama", rope_theta=5e5, tie_word_embeddings=False),
    "mistral": dict(SHAPE, model_type="mistral", sliding_window=8, tie_word_embeddings=False),
    "qwen2_mixed": dict(QWEN, model_type="qwen2", use_sliding_window=True, head_dim=8),
    "qwen3": dict(QWEN, model_type="qwen3", use_sliding_window=False),
    "qwen3_mixed_saved": dict(QWEN, model_type="qwen3", use_sliding_window=True),
    "gemma2": GEMMA2,
    "gemma2_saved": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3_saved": dict(GEMMA3, num_key_value_heads=1),
    "gpt2": GPT2,
    "gpt2_saved": dict(GPT2, n_inner=40),
    "gpt_oss": GPT_OSS,
    "gpt_oss_saved": dict(GPT_OSS, rope_scaling=dict(YARN, truncate=True)),
    "nanochat": NANOCHAT,
    "nanochat_saved": dict(NANOCHAT, head_dim=8, num_key_value_heads=4, rope_scaling=dict(YARN, rope_theta=1000.0)),
    "qwen3_5": QWEN35,
    "qwen3_5_saved": dict(QWEN35, num_hidden_layers=2, rope_parameters=dict(YARN, rope_theta=1000.0, partial_rotary_factor=0.5)),
}


def weights(name: str, shape: list[int]) -> numpy.ndarray:
    """Uniform around a centre: splitmix64 over the FNV-1a hash of the name. families_test.cc has the same rule."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    x = numpy.uint64(seed) + numpy.arange(1, numpy.prod(shape) + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    uniform = ((x ^ (x >> numpy.uint64(31))) >> numpy.uint64(40)).astype(numpy.float64) / 2**23 - 1
    norm = len(shape) == 1 and name.endswith("weight")
    embedding = name.endswith(("embed_tokens.weight", "wte.weight", "wpe.weight", "sinks"))
    return ((1.0 if norm else 0.0) + (1.0 if embedding else 0.3) * uniform).astype(numpy.float32).reshape(shape)


def run_case(name: str, config: dict[str, Any]) -> tuple[dict[str, Any], numpy.ndarray]:
    """The case's entry in cases.json, and its logits."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        loaded = transformers.AutoConfig.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_config(loaded, attn_implementation="eager").float().eval()
        model.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        with safe_open(Path(folder) / "model.safetensors", "numpy") as file:
            shapes = {tensor: file.get_slice(tensor).get_shape() for tensor in file.keys()}
    # The file of the released GPT-2 is that of the model without its classifier.
    cut = len("transformer.") if name == "gpt2" else 0
    with torch.no_grad():
        state = model.state_dict()
        for tensor, shape in shapes.items():
            state[tensor].copy_(torch.from_numpy(weights(tensor[cut:], shape)))
        ids = torch.tensor([[i * i % config["vocab_size"] for i in range(TOKENS)]])
        logits = model(ids, use_cache=False).logits[0].numpy()
    tensors = {tensor[cut:]: shape for tensor, shape in sorted(shapes.items())}
    return {"config": saved if name.endswith("_saved") else config, "tensors": tensors}, logits


def main() -> None:
    results = {name: run_case(name, config) for name, config in CASES.items()}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = [f' "{name}": {json.dumps(case)}' for name, (case, _) in results.items()]
    text = ",\n".join([f' "versions": {json.dumps(versions)}', *lines])
    folder = Path(sys.argv[1])
    (folder / "cases.json").write_text("{\n" + text + "\n}\n")
    save_file({name: logits for name, (_, logits) in results.items()}, folder / "logits.safetensors")


if __name__ == "__main__":
    main()
