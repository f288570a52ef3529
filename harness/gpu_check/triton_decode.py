"""Split-KV decode attention in Triton, as a peer: f16, int8 with an f16 scale a row, int4 with a scale and zero a row.

The query heads of a group are one tile's rows, padded to the 16 that tensor cores take; a program has one (sequence,
kv head) and one stretch of rows; a second kernel merges the stretches. WIDTH is what a row's codes take: half of DIM
where two share a byte.
"""

from typing import Any  # and no annotations as text: older Triton takes them for types

import torch
import triton
import triton.language as tl

BLOCK = 64


def store_int4(x: Any) -> tuple[Any, Any, Any]:
    """Codes of elements i and i + D/2 share a byte; scale and zero f16 a row."""
    low, high = x.float().amin(-1, keepdim=True), x.float().amax(-1, keepdim=True)
    scale = ((high - low) / 15.0).half()
    code = torch.round((x.float() - low.half().float()) / scale.float()).clamp(0, 15).to(torch.uint8)
    half = x.shape[-1] // 2
    return code[..., :half] | (code[..., half:] << 4), scale, low.half()


@triton.jit
def decode_split(q, k, v, k_scale, v_scale, k_zero, v_zero, values, maxima, sums, rows, splits, step, scale,
                 GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_N: tl.constexpr,
                 BITS: tl.constexpr):
    head = tl.program_id(0)
    split = tl.program_id(1)
    g = tl.arange(0, 16)
    n = tl.arange(0, BLOCK_N)
    c = tl.arange(0, WIDTH)
    base = head.to(tl.int64) * rows
    queries = q + (head * GROUP + g[:, None]) * DIM + c[None, :]
    q_low = tl.load(queries, mask=g[:, None] < GROUP, other=0.0)
    q_high = q_low
    if BITS == 4:
        q_high = tl.load(queries + WIDTH, mask=g[:, None] < GROUP, other=0.0)
    m = tl.full((16,), -1e30, tl.float32)
    total = tl.zeros((16,), tl.float32)
    acc = tl.zeros((16, WIDTH), tl.float32)
    acc_high = tl.zeros((16, WIDTH), tl.float32)
    begin = split * step
    end = tl.minimum(begin + step, rows)
    for at in range(begin, end, BLOCK_N):
        row = at + n
        there = row < end
        place = (base + row)[:, None] * WIDTH + c[None, :]
        code = tl.load(k + place, mask=there[:, None], other=0)
        if BITS == 4:
            s = tl.dot(q_low, tl.trans((code & 15).to(tl.float16)))
            s += tl.dot(q_high, tl.trans((code >> 4).to(tl.float16)))
            factor = tl.load(k_scale + base + row, mask=there, other=0.0).to(tl.float32)
            zero = tl.load(k_zero + base + row, mask=there, other=0.0).to(tl.float32)
            q_sum = tl.sum(q_low.to(tl.float32), 1) + tl.sum(q_high.to(tl.float32), 1)
            s = s * factor[None, :] + q_sum[:, None] * zero[None, :]
        else:
            s = tl.dot(q_low, tl.trans(code.to(tl.float16)))
            if BITS == 8:
                s *= tl.load(k_scale + base + row, mask=there, other=0.0).to(tl.float32)[None, :]
        s = tl.where(there[None, :], s * scale, -float("inf"))
        higher = tl.maximum(m, tl.max(s, 1))
        rescale = tl.exp2(m - higher)
        p = tl.exp2(s - higher[:, None])
        total = total * rescale + tl.sum(p, 1)
        acc *= rescale[:, None]
        code = tl.load(v + place, mask=there[:, None], other=0)
        if BITS == 4:
            acc_high *= rescale[:, None]
            factor = tl.load(v_scale + base + row, mask=there, other=0.0).to(tl.float32)
            zero = tl.load(v_zero + base + row, mask=there, other=0.0).to(tl.float32)
            weight = (p * factor[None, :]).to(tl.float16)
            offset = tl.sum(p * zero[None, :], 1)
            acc += tl.dot(weight, (code & 15).to(tl.float16)) + offset[:, None]
            acc_high += tl.dot(weight, (code >> 4).to(tl.float16)) + offset[:, None]
        else:
            if BITS == 8:
                p *= tl.load(v_scale + base + row, mask=there, other=0.0).to(tl.float32)[None, :]
            acc += tl.dot(p.to(tl.float16), code.to(tl.float16))
        m = higher
    part = (head * splits + split) * 16 + g
    to = values + part[:, None] * DIM + c[None, :]
    tl.store(to, acc)
    if BITS == 4:
        tl.store(to + WIDTH, acc_high)
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
    tl.store(out + (head * GROUP + g) * DIM + d, (acc / total).to(tl.float16))


def planes(stored: Any, bits: int) -> tuple[Any, Any, Any]:
    """Codes, scales, zeros; the codes stand in for what a format has not."""
    if bits == 16:
        return stored, stored, stored
    return (stored[0], stored[1], stored[1]) if bits == 8 else stored


def step(bits: int) -> Any:
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count

    def run(q: Any, k: Any, v: Any) -> Any:
        batch, heads, group, dim = q.shape
        k_code, k_scale, k_zero = planes(k, bits)
        v_code, v_scale, v_zero = planes(v, bits)
        rows = k_code.shape[2]
        splits = max(1, min(rows // BLOCK, 4 * multiprocessors // (batch * heads)))
        length = -(-rows // splits // BLOCK) * BLOCK
        splits = -(-rows // length)
        options = {"device": q.device, "dtype": torch.float32}
        values = torch.empty((batch * heads, splits, 16, dim), **options)
        maxima, sums = (torch.empty((batch * heads, splits, 16), **options) for _ in range(2))
        out = torch.empty_like(q)
        scale = dim**-0.5 * 1.4426950408889634
        decode_split[(batch * heads, splits)](q, k_code, v_code, k_scale, v_scale, k_zero, v_zero, values, maxima, sums,
                                              rows, splits, length, scale, GROUP=group, DIM=dim,
                                              WIDTH=dim // 2 if bits == 4 else dim, BLOCK_N=BLOCK, BITS=bits,
                                              num_warps=4, num_stages=3)
        merge[(batch * heads, group)](values, maxima, sums, out, splits, GROUP=group, DIM=dim)
        return out

    return run
