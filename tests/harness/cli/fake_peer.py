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
"""A peer in plain Python. Each format but f32 and f16 fails in its own way."""

import math
import os
import struct
import sys
import time
from array import array
from types import SimpleNamespace

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
        s, self.arm, self.tokens = setting, arm, tokens
        self.setting, self.rounds, self.settings = s, 0, "plain Python"
        print("an engine that prints must not disturb the answers", flush=True)
        if s.format == "raises":
            raise ValueError("the engine has\nno such kernel")
        if s.format == "refuses":
            raise Unsupported("head_dim 16 is none of 64, 128")  # noqa: F821  # serve.py gives it
        if s.format == "full":
            raise MemoryError
        self.rows = [self.side(tokens.k, 0, s.base), self.side(tokens.v, 0, s.base)]

    def side(self, view, first, last):
        s = self.setting
        return [[[[self.stored(view[b, h, t, d]) for d in range(s.head_dim)] for t in range(first, last)]
                 for h in range(s.kv_heads)] for b in range(s.batch)]  # fmt: skip

    def stored(self, value):
        return struct.unpack("e", struct.pack("e", value))[0] if self.setting.format == "f16" else value

    def rewind(self):
        self.rounds += 1
        for side in self.rows:
            for heads in side:
                for rows in heads:
                    del rows[self.setting.base :]

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
        for side, view in zip(self.rows, (self.tokens.k, self.tokens.v)):
            for heads, new in zip(side, self.side(view, s.base + i, s.base + i + 1)):
                for rows, row in zip(heads, new):
                    rows += row
        self.attend(i)

    def attend(self, i=None):
        s, self.out = self.setting, array("f")
        i = s.steps - 1 if i is None else i
        for b in range(s.batch):
            for h in range(s.q_heads):
                k, v = (side[b][h // s.group] for side in self.rows)
                q = [self.tokens.q[b, h, i, d] for d in range(s.head_dim)]
                weights = [math.exp(sum(map(float.__mul__, q, row)) / math.sqrt(s.head_dim)) for row in k]
                for d in range(s.head_dim):
                    self.out.append(sum(w * row[d] for w, row in zip(weights, v)) / sum(weights) * (1.001 if s.format == "wrong" else 1))

    def output(self):
        return self.out

    def bytes(self):
        return (1 if self.setting.format == "f16" else 4096) << 10  # so that f16 would take too many copies to be cold
