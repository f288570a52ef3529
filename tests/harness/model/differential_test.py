"""Models that nobody chose: of every model_type that kvlab runs, the class's own default config, shrunk, with five changes drawn by seed,
as a folder and where it can be as a GGUF file. kvlab's logits are those of transformers, or it refuses in one line.

Needs transformers, PyTorch and gguf. KVLAB_DRAWS is the number of models, KVLAB_SEED draws them; pytest's -s prints a line for each.
"""
from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Callable

import numpy
import pytest

for package in ("gguf", "torch", "transformers"):
    pytest.importorskip(package, reason=f"no PyTorch and transformers here: No module named {package}")

import gguf  # noqa: E402
import torch  # noqa: E402
from gguf_models import finish  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import CONFIG_MAPPING, AutoModelForCausalLM  # noqa: E402
from transformers.utils import logging  # noqa: E402

HOME = Path(os.environ["KVLAB_HOME"])
PROGRAM = os.environ["KVLAB_PROGRAM"]
TYPES = re.findall(r'Family\{\.type = "(\w+)"', (HOME / "harness/model/family.cc").read_text())
BOUND = 2e-4
TOKENS = 40
SIZES: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=97,
    max_position_embeddings=128, sliding_window=8, query_pre_attn_scalar=24, num_local_experts=4, num_experts_per_tok=2, n_embd=32,
    n_layer=3, n_head=4, n_positions=64, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
    pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3_text": "gemma3"}  # in GGUF
NOT_OF_MODELS = ("return_dict", "output_attentions", "output_hidden_states", "is_encoder_decoder")  # they change what the class returns
Config = dict[str, Any]
Change = Callable[[Config, random.Random], None]


def shrunk(model_type: str) -> Config:
    config = CONFIG_MAPPING[model_type]().to_dict()
    config.update({key: value for key, value in SIZES.items() if key in config})
    return {key: value for key, value in config.items() if key not in ("layer_types", "transformers_version", "_name_or_path")}


def rope(config: Config, draw: random.Random) -> None:
    """A scaling with some of its keys, in one of the places where files have it, or in two."""
    kind = draw.choice(["default", "linear", "llama3", "yarn", "yarn", "dynamic", "proportional"])
    rope = {"rope_type": kind, "rope_theta": draw.choice([500.0, 10000.0, 1e6])}
    if kind != "default":
        rope["factor"] = draw.choice([2.0, 4.0, 8.0])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=draw.choice([2.0, 4.0]))
    if kind == "yarn":
        more = dict(beta_fast=8.0, beta_slow=2.0, truncate=False, attention_factor=1.3, mscale=0.7, mscale_all_dim=0.5)
        rope.update({key: value for key, value in more.items() if draw.random() < 0.4})
    if kind in ("yarn", "llama3"):
        (rope if draw.random() < 0.6 else config)["original_max_position_embeddings"] = draw.choice([16, 32, 64])
    older = draw.random()
    if older < 0.5 and "rope_parameters" in config:
        config["rope_parameters"] = rope
        return
    if older < 0.8:
        config.pop("rope_parameters", None)
        config["rope_theta"] = rope.pop("rope_theta")
    if draw.random() < 0.3:
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope


def values(*keys: str, of: list[Any]) -> Change:
    def change(config: Config, draw: random.Random) -> None:
        known = [key for key in keys if key in config]
        if known:
            config[draw.choice(known)] = draw.choice(of)

    return change


def any_key(config: Config, draw: random.Random) -> None:
    """Another value of a key that the class has, whichever it is."""
    key = draw.choice(sorted(key for key, value in config.items() if isinstance(value, (bool, float)) and key not in NOT_OF_MODELS))
    config[key] = not config[key] if isinstance(config[key], bool) else config[key] * 1.5 + 0.01


def layer_types(config: Config, draw: random.Random) -> None:
    if config.get("sliding_window"):
        config["layer_types"] = [draw.choice(["full_attention", "sliding_attention"]) for _ in range(config["num_hidden_layers"])]


def windows(config: Config, draw: random.Random) -> None:
    if "use_sliding_window" in config:
        config.update(use_sliding_window=draw.random() < 0.7, sliding_window=6, max_window_layers=draw.randint(0, 4))
    elif "sliding_window" in config:
        config["sliding_window"] = draw.choice([5, 16, None])


def left_out(config: Config, draw: random.Random) -> None:
    """A key that a file lacks means the class's default, if that is small enough."""
    config.pop(draw.choice(["head_dim", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "rope_parameters", "attention_bias"]), None)


CHANGES: list[Change] = [
    rope, rope, rope, any_key, any_key, layer_types, windows, left_out,
    values("attention_bias", of=[True]), values("mlp_bias", of=[True]),
    values("tie_word_embeddings", of=[True, False]),
    values("head_dim", of=[8, 32, None]),
    values("num_key_value_heads", of=[1, 2, 4]),
    values("rms_norm_eps", "layer_norm_epsilon", of=[1e-3, 1e-5, 1e-6]),
    values("hidden_act", "hidden_activation", "activation_function", of=["gelu", "gelu_pytorch_tanh", "relu", "silu"]),
    values("attn_logit_softcapping", "final_logit_softcapping", of=[3.0, None]),
    values("query_pre_attn_scalar", of=[16, 40]),
    values("num_experts_per_tok", of=[1, 3]), values("partial_rotary_factor", of=[0.5]),
]  # fmt: skip


def drawn(draw: random.Random) -> Config:
    config = shrunk(draw.choice(TYPES))
    for change in draw.sample(CHANGES, 5):
        change(config, draw)
    return config


def write_folder(config: Config, folder: Path, draw: random.Random) -> None:
    """A model of the class with weights so large that all of it matters; in some, a head beside the flag that ties it."""
    (folder / "config.json").write_text(json.dumps(config))
    read = CONFIG_MAPPING[config["model_type"]].from_pretrained(folder)
    torch.manual_seed(draw.getrandbits(32))
    model = AutoModelForCausalLM.from_config(read, attn_implementation="eager")
    with torch.no_grad():
        for name, weights in model.named_parameters():
            spread = 1.0 if "embed" in name or "wte" in name else 0.15
            weights.copy_(spread * torch.randn_like(weights) + (1.0 if "norm" in name or "ln_" in name else 0.0))
    own = draw.random() < 0.3
    model.to(draw.choice([torch.float32, torch.float32, torch.bfloat16])).save_pretrained(folder, max_shard_size="200KB" if draw.random() < 0.2 else "1GB")
    if not own:
        (folder / "config.json").write_text(json.dumps(config))
    one = folder / "model.safetensors"
    if draw.random() < 0.2 and one.exists():
        tensors = load_file(one)
        name = next(name for name in tensors if "embed_tokens" in name or name.endswith("wte.weight"))
        tensors.setdefault("lm_head.weight", torch.randn_like(tensors[name]) * 0.2)
        save_file(tensors, one, {"format": "pt"})


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
    """The model by the names of the gguf package, in the way of llama.cpp's converter; false if GGUF has no place for something of it."""
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
    finish(writer)
    return True


def compared(model: Path, folder: Path, wanted: Any) -> str:
    """equal, refused: …, or wrong: …"""
    out = folder / "out.safetensors"
    command = [PROGRAM, "logits", "--model", str(model), "--text", str(folder / "ids.npy"), "--out", str(out)]
    environment = {**os.environ, "KVLAB_HOME": str(HOME), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("kvlab: converting") and ": tie_word_embeddings is true" not in line]
    if done.returncode == 2 and len(lines) == 1:
        return f"refused: {lines[0][-160:]}"
    if done.returncode != 0 or lines:
        return f"wrong: exit code {done.returncode}: {done.stderr[-500:]}"
    worst = float((load_file(out)["logits"] - wanted).abs().max())
    return "equal" if worst < BOUND else f"wrong: {worst}"


def results(config: Config, draw: random.Random, folder: Path) -> dict[str, str]:
    """What came of a folder and of a GGUF file; nothing where transformers itself refuses the config."""
    ids = numpy.array([draw.randrange(config["vocab_size"]) for _ in range(TOKENS)], "<u4")
    numpy.save(folder / "ids.npy", ids)
    try:
        write_folder(config, folder, draw)
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            wanted = model(torch.from_numpy(ids.astype("int64"))[None], use_cache=False).logits[0]
    except Exception as error:  # whatever a class says of a config that it does not take
        return {"transformers": f"{type(error).__name__}: {str(error)[:100]}"}
    if not torch.isfinite(wanted).all():
        return {}
    found = {"folder": compared(folder, folder, wanted)}
    if write_gguf(model, folder / "model.gguf"):
        found["gguf"] = compared(folder / "model.gguf", folder, wanted)
    return found


def test_logits_are_those_of_transformers_or_refused(tmp_path: Path) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    seed, counts, wrong = os.environ.get("KVLAB_SEED", "0"), Counter[str](), []
    draws = int(os.environ.get("KVLAB_DRAWS", "10"))
    for number in range(10 * draws):
        if number >= draws and counts["folder equal"] > 0 and counts["gguf equal"] > 0:
            break  # few draws may all be refused, which would prove nothing
        draw = random.Random(f"{seed}-{number}")
        config, folder = drawn(draw), tmp_path / str(number)
        folder.mkdir()
        for kind, said in results(config, draw, folder).items():
            counts[f"{kind} {said.split(':')[0]}"] += 1
            print(number, config["model_type"], kind, said)
            if said.startswith("wrong"):
                wrong.append(f"{number} of seed {seed}, {kind}, {said}: {json.dumps(config)}")
        shutil.rmtree(folder)
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
    assert counts["folder equal"] > 0 and counts["gguf equal"] > 0
