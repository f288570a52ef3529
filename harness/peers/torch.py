# /// script
# dependencies = ["torch==2.15.0", "numpy>=2"]
# [tool.kvlab.formats]
# f32 = { stored = "f32", tolerance = 1e-5 }
# bf16 = { stored = "bf16", tolerance = 2e-2 }
# ///
"""PyTorch over a pre-allocated cache: each step writes one row and reads a slice, without copies.

  sdpa_packed  scaled_dot_product_attention with the queries of a group as rows of one head, which reads each KV head once
  sdpa_gqa     the same function with enable_gqa
  flash_*, cudnn_*, efficient_*   both on a GPU, with each of its backends forced
  matmul       products and softmax, with packed queries
  flex         flex_attention, compiled
"""

import contextlib

import importlib.util
import os

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compile in this process alone

NEEDS = ["torch", "numpy"]
DEVICES = ("cpu", "cuda")
BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}


def version():
    import torch

    return torch.__version__


def arms(setting):
    flex = ["flex"] if importlib.util.find_spec("torch.nn.attention.flex_attention") else []
    backends = BACKENDS if setting.device == "cuda" else ["sdpa"]
    return [*(f"{backend}_{form}" for backend in backends for form in ("packed", "gqa")), "matmul", *flex]


def prepared(setting):
    """PyTorch with the setting's number of threads: OpenMP's, which sleep soon after a step (GOMP_SPINCOUNT)."""
    import torch

    torch.set_num_threads(setting.threads)
    torch.set_grad_enabled(False)
    return torch


def tensor_of(view, kind, device):
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(view)).to(getattr(torch, kind)).to(device)


FLEX = []


def compiled_flex():
    """One for all caches: compiling takes half a minute."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    if not FLEX:
        torch._dynamo.config.cache_size_limit = 64
        FLEX.append(torch.compile(flex_attention, dynamic=True))
    return FLEX[0]


class Cache:
    def __init__(self, setting, arm, tokens):
        torch = self.torch = prepared(setting)
        s = self.setting = setting
        kind = {"f32": "float32", "bf16": "bfloat16"}[s.format]
        self.sides = []
        self.new = []
        for view in (tokens.k, tokens.v):
            side = tensor_of(view, kind, s.device)
            rows = torch.zeros_like(side)
            rows[:, :, : s.base] = side[:, :, : s.base]
            self.sides.append(rows)
            self.new.append([side[:, :, s.base + i : s.base + i + 1].clone() for i in range(s.steps)])
        packed = arm.endswith("_packed") or arm == "matmul"
        shape = (s.batch, s.kv_heads, s.group, s.head_dim) if packed else (s.batch, s.q_heads, 1, s.head_dim)
        self.q = [tensor_of(tokens.q, kind, s.device)[:, :, i].reshape(shape).contiguous() for i in range(s.steps)]
        self.attention = {"matmul": self.matmul, "flex": self.flex}.get(arm, self.sdpa)
        self.gqa = arm.endswith("_gqa") and s.group > 1
        self.forced = contextlib.nullcontext
        if (backend := arm.partition("_")[0]) in BACKENDS:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            self.forced = lambda: sdpa_kernel([getattr(SDPBackend, BACKENDS[backend])])
        if arm == "flex":
            self.compiled = compiled_flex()
        self.settings = f"pre-allocated, {s.threads} threads, {s.format} queries"

    def sdpa(self, q, k, v):
        with self.forced():
            return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=self.gqa)

    def matmul(self, q, k, v):
        scores = self.torch.matmul(q, k.transpose(2, 3)) * (self.setting.head_dim**-0.5)
        return self.torch.matmul(scores.softmax(-1), v)

    def flex(self, q, k, v):
        return self.compiled(q, k, v, enable_gqa=self.setting.group > 1)

    def rewind(self):
        """Nothing to do: steps overwrite their rows."""

    def step(self, i):
        at = self.setting.base + i
        for side, new in zip(self.sides, self.new):
            side[:, :, at : at + 1] = new[i]
        self.out = self.attention(self.q[i], *(side[:, :, : at + 1] for side in self.sides))
        if self.setting.device == "cuda":
            self.torch.cuda.synchronize()

    def attend(self):
        self.out = self.attention(self.q[-1], *self.sides)

    def output(self):
        return self.out.float().cpu().contiguous().numpy()

    def bytes(self):
        return sum(side.nbytes for side in self.sides)
