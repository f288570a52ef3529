# /// script
# dependencies = ["torch==2.15.0", "numpy>=2"]
# [tool.kvlab.formats]
# f16 = { stored = "f16", tolerance = 2e-3 }
# int8 = { stored = "token(bits=8,mode=symmetric)", tolerance = 2e-3 }
# int4 = { stored = "token(bits=4)", tolerance = 2e-3 }
# ///
"""Split-KV decode attention in Triton on a GPU. int8 and int4 rows are those of kvlab's token codec: codes, and f32 scales a row.

  split_kv    a program attends to one (sequence, KV head) and one split of its rows; a second kernel merges the splits. The query
              heads of a group are one tile's rows, padded to the 16 that tensor cores take
  dequantise  int8 alone: all rows become f16, then PyTorch's scaled_dot_product_attention

Element i and element i + head_dim / 2 share a byte of int4. Triton's interpreter (TRITON_INTERPRET=1) runs it on a CPU, for tests.
"""

import os

import torch
import triton
import triton.language as tl

NEEDS = ["torch", "triton", "numpy"]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = ("cpu",) if INTERPRETED else ("cuda",)
BITS_OF = {"f16": 16, "int8": 8, "int4": 4}
BLOCK = 64  # rows of a tile
LOG2_E = 1.4426950408889634


def version():
    return f"{triton.__version__} (torch {torch.__version__})"


def arms(setting):
    return ["split_kv", "dequantise"] if setting.format == "int8" and not INTERPRETED else ["split_kv"]


@triton.jit
def halves_of(codes, at, there, BITS: tl.constexpr, HALF: tl.constexpr):
    """Elements below HALF and from HALF on of the rows `at`, as f16 [rows, HALF]."""
    c = tl.arange(0, HALF)
    if BITS == 4:
        both = tl.load(codes + at[:, None] * HALF + c[None, :], mask=there[:, None], other=0)
        low = both & 15
        high = both >> 4
    else:
        place = codes + at[:, None] * (2 * HALF) + c[None, :]
        low = tl.load(place, mask=there[:, None], other=0)
        high = tl.load(place + HALF, mask=there[:, None], other=0)
    return low.to(tl.float16), high.to(tl.float16)


@triton.jit
def decode_split(q, k, k_scale, k_zero, v, v_scale, v_zero, values, maxima, sums, rows, capacity, splits, step, scale,
                 GROUP: tl.constexpr, HALF: tl.constexpr, BLOCK_N: tl.constexpr, BITS: tl.constexpr):
    head = tl.program_id(0)
    split = tl.program_id(1)
    g = tl.arange(0, 16)
    c = tl.arange(0, HALF)
    queries = q + (head * GROUP + g[:, None]) * (2 * HALF) + c[None, :]
    q_low = tl.load(queries, mask=g[:, None] < GROUP, other=0.0)
    q_high = tl.load(queries + HALF, mask=g[:, None] < GROUP, other=0.0)
    q_sum = tl.sum(q_low.to(tl.float32), 1) + tl.sum(q_high.to(tl.float32), 1)
    m = tl.full((16,), -1e30, tl.float32)
    total = tl.zeros((16,), tl.float32)
    low = tl.zeros((16, HALF), tl.float32)
    high = tl.zeros((16, HALF), tl.float32)
    end = tl.minimum(split * step + step, rows)
    for first in range(split * step, end, BLOCK_N):
        row = first + tl.arange(0, BLOCK_N)
        there = row < end
        at = head.to(tl.int64) * capacity + row
        k_low, k_high = halves_of(k, at, there, BITS, HALF)
        s = tl.dot(q_low, tl.trans(k_low)) + tl.dot(q_high, tl.trans(k_high))
        if BITS < 16:
            s *= tl.load(k_scale + at, mask=there, other=0.0)[None, :]
        if BITS == 4:
            s += q_sum[:, None] * tl.load(k_zero + at, mask=there, other=0.0)[None, :]
        s = tl.where(there[None, :], s * scale, -float("inf"))
        higher = tl.maximum(m, tl.max(s, 1))
        rescale = tl.exp2(m - higher)
        m = higher
        p = tl.exp2(s - higher[:, None])
        total = total * rescale + tl.sum(p, 1)
        low *= rescale[:, None]
        high *= rescale[:, None]
        if BITS == 4:
            offset = tl.sum(p * tl.load(v_zero + at, mask=there, other=0.0)[None, :], 1)
            low += offset[:, None]
            high += offset[:, None]
        if BITS < 16:
            p *= tl.load(v_scale + at, mask=there, other=0.0)[None, :]
        v_low, v_high = halves_of(v, at, there, BITS, HALF)
        low += tl.dot(p.to(tl.float16), v_low)
        high += tl.dot(p.to(tl.float16), v_high)
    part = (head * splits + split) * 16 + g
    to = values + part[:, None] * (2 * HALF) + c[None, :]
    tl.store(to, low)
    tl.store(to + HALF, high)
    tl.store(maxima + part, m)
    tl.store(sums + part, total)


@triton.jit
def merge(values, maxima, sums, out, splits, GROUP: tl.constexpr, DIM: tl.constexpr):
    head = tl.program_id(0)
    g = tl.program_id(1)
    d = tl.arange(0, DIM)
    m = tl.full((1,), -1e30, tl.float32)
    total = tl.zeros((1,), tl.float32)
    acc = tl.zeros((DIM,), tl.float32)
    for split in range(splits):
        part = (head * splits + split) * 16 + g
        other = tl.load(maxima + part)
        higher = tl.maximum(m, other)
        old = tl.exp2(m - higher)
        new = tl.exp2(other - higher)
        total = total * old + tl.load(sums + part) * new
        acc = acc * old + tl.load(values + part * DIM + d) * new
        m = higher
    tl.store(out + (head * GROUP + g) * DIM + d, acc / total)


def encode(x, bits):
    """Planes of f32 rows [..., head_dim]: codes, then f32 scales and zeros [..., 1] for the formats that have them."""
    if bits == 16:
        return [x.half()]
    if bits == 8:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return [torch.round(x / scale).to(torch.int8), scale]
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = (high - low) / 15
    code = torch.round((x - low) / scale).clamp(0, 15).to(torch.uint8)
    first, second = code.chunk(2, -1)
    return [first | (second << 4), scale, low]


class Cache:
    def __init__(self, setting, arm, tokens):
        import numpy as np

        torch.set_grad_enabled(False)
        s = self.setting = setting
        self.bits = BITS_OF[s.format]
        self.attention = getattr(self, arm)
        self.sides, self.new = [], []
        for view in (tokens.k, tokens.v):
            rows = torch.from_numpy(np.asarray(view)).to(s.device)
            self.new.append([rows[:, :, s.base + i : s.base + i + 1].clone() for i in range(s.steps)])
            self.sides.append(encode(rows, self.bits))
            for plane in self.sides[-1]:
                plane[:, :, s.base :] = 0
        q = torch.from_numpy(np.asarray(tokens.q)).to(s.device).half()
        self.q = [q[:, :, i].reshape(s.batch, s.kv_heads, s.group, s.head_dim).contiguous() for i in range(s.steps)]
        self.processors = 4 if INTERPRETED else torch.cuda.get_device_properties(0).multi_processor_count
        self.settings = f"tiles of {BLOCK} rows, f16 queries"

    def split_kv(self, q, rows):
        s, heads = self.setting, self.setting.batch * self.setting.kv_heads
        step = -(-rows // max(1, min(rows // BLOCK, 4 * self.processors // heads)) // BLOCK) * BLOCK
        splits = -(-rows // step)
        values = torch.empty((heads, splits, 16, s.head_dim), device=s.device)
        maxima, sums = (torch.empty((heads, splits, 16), device=s.device) for _ in range(2))
        out = torch.empty(q.shape, device=s.device)
        k, v = ((planes * 3)[:3] for planes in self.sides)  # codes stand in for absent scales and zeros
        decode_split[(heads, splits)](q, *k, *v, values, maxima, sums, rows, s.tokens, splits, step, s.head_dim**-0.5 * LOG2_E,
                                      GROUP=s.group, HALF=s.head_dim // 2, BLOCK_N=BLOCK, BITS=self.bits, num_warps=4, num_stages=3)  # fmt: skip
        merge[(heads, s.group)](values, maxima, sums, out, splits, GROUP=s.group, DIM=s.head_dim)
        return out

    def dequantise(self, q, rows):
        k, v = (codes[:, :, :rows].half() * scale[:, :, :rows].half() for codes, scale in self.sides)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def rewind(self):
        """Nothing to do: steps overwrite their rows."""

    def step(self, i):
        at = self.setting.base + i
        for planes, new in zip(self.sides, self.new):
            for plane, row in zip(planes, encode(new[i], self.bits)):
                plane[:, :, at : at + 1] = row
        self.out = self.attention(self.q[i], at + 1)
        if not INTERPRETED:
            torch.cuda.synchronize()

    def attend(self):
        self.out = self.attention(self.q[-1], self.setting.tokens)

    def output(self):
        return self.out.float().cpu().contiguous().numpy()

    def bytes(self):
        return sum(plane.nbytes for planes in self.sides for plane in planes)
