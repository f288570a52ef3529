# /// script
# dependencies = []
# [tool.kvlab.formats]
# f32 = { stored = "f32", tolerance = 1e-5 }
# f16 = { stored = "f16", tolerance = 1e-5 }
# wrong = { stored = "f32", tolerance = 1e-5 }
# late = { stored = "f32", tolerance = 1e-5 }
# early = { stored = "f32", tolerance = 1e-5 }
# hang = { stored = "f32", tolerance = 1e-5 }
# raises = { stored = "f32", tolerance = 1e-5 }
# refuses = { stored = "f32", tolerance = 1e-5 }
# full = { stored = "f32", tolerance = 1e-5 }
# ///
"""A peer in NumPy. Each format but f32 and f16 fails in its own way."""

import math
import os
import sys
import time
from types import SimpleNamespace

import numpy as np

NEEDS = ["math"]
DEVICES = ("cpu", "cuda")
# PyTorch with a GPU whose clock says 250 us.
EVENT = SimpleNamespace(record=lambda: None, synchronize=lambda: None, elapsed_time=lambda end: 0.25)
CUDA = SimpleNamespace(Event=lambda **_: EVENT, _sleep=lambda _: None, memory_allocated=lambda: 0, empty_cache=lambda: None)
sys.modules["torch"] = SimpleNamespace(cuda=CUDA)


def version():
    return "1.0"


def arms(setting):
    return ["slow", "quick"] if setting.format == "f32" else ["quick"]


class Cache:
    def __init__(self, setting, arm, tokens):
        s, self.arm = setting, arm
        self.setting, self.rounds, self.settings = s, 0, "plain Python"
        print("an engine that prints must not disturb the answers", flush=True)
        if s.format == "raises":
            raise ValueError("the engine has\nno such kernel")
        if s.format == "refuses":
            raise Unsupported("head_dim 16 is none of 64, 128")  # noqa: F821  # serve.py gives it
        if s.format == "full":
            raise MemoryError
        self.q = np.asarray(tokens.q)
        self.rows = [np.array(side, np.float16 if s.format == "f16" else np.float32) for side in (tokens.k, tokens.v)]
        self.kept = s.base

    def rewind(self):
        self.rounds += 1
        self.kept = self.setting.base

    def step(self, i):
        s = self.setting
        if self.arm == "slow":
            time.sleep(2e-3)
        # Once for the outputs that are verified, then a repetition each.
        if self.rounds >= 3 and s.format == "late":
            sys.exit("out of registers") if i == 1 else os.write(2, b"a line before\nout of registers\n")
        if s.format == "early":
            os._exit(3)
        if self.rounds >= 2 and s.format == "hang":
            open(__file__ + ".hangs", "w").close()
            time.sleep(1000)
        self.kept = s.base + i + 1
        self.attend(i)

    def attend(self, i=-1):
        s = self.setting
        k, v = (side[:, :, : self.kept].repeat(s.group, axis=1).astype(np.float64) for side in self.rows)
        weights = np.exp(np.einsum("bhd,bhtd->bht", self.q[:, :, i], k) / math.sqrt(s.head_dim))
        out = np.einsum("bht,bhtd->bhd", weights, v) / weights.sum(-1, keepdims=True)
        self.out = (out * (1.001 if s.format == "wrong" else 1)).astype(np.float32)

    def output(self):
        return self.out

    def bytes(self):
        return (1 if self.setting.format == "f16" else 4096) << 10  # so that f16 would take too many copies to be cold
