"""What policies keep and what formats lose, in FP64 and NumPy: the definitions that kvlab.conformance holds others to.

Written from the papers, as harness/verify/reference/ is, and without its code. A test compares them with kvlab's own caches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Decision:
    """A rule's scores [kv_heads, tokens]; the largest stay, and an infinite one always does. `rows`: how many of each head.
    `together`: heads compete for rows * kv_heads."""

    scores: np.ndarray
    rows: int
    together: bool = False

    def miss(self, kept: list[np.ndarray]) -> float:
        """The relative distance by which the smallest kept score misses the largest dropped. Infinite: too many or too few rows,
        a row twice, or a protected one dropped."""
        is_kept = np.zeros(self.scores.shape, bool)
        for head, tokens in enumerate(kept):
            if len(set(tokens)) != len(tokens) or len(tokens) and not (0 <= min(tokens) and max(tokens) < self.scores.shape[1]):
                return math.inf
            is_kept[head, tokens] = True
        groups = [(self.scores.ravel(), is_kept.ravel())] if self.together else list(zip(self.scores, is_kept, strict=True))
        worst = 0.0
        for scores, stays in groups:
            if stays.sum() != min(len(scores), self.rows * (len(self.scores) if self.together else 1)):
                return math.inf
            if stays.all():
                continue
            least, most = scores[stays].min(), scores[~stays].max()
            if least < most:
                worst = max(worst, math.inf if math.isinf(most) else (most - least) / max(abs(most), 1e-300))
        return worst


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def weights_of(q: np.ndarray, k: np.ndarray, newest: int, mask: np.ndarray | None = None) -> np.ndarray:
    """Causal attention of the newest queries: [kv_heads, group, newest, tokens]. q: [q_heads, n, d]; k: [kv_heads, tokens, d];
    mask: [tokens], true where a token is real."""
    tokens = k.shape[1]
    q = q[:, q.shape[1] - newest :].reshape(len(k), -1, newest, q.shape[2]).astype(np.float64)
    scores = np.einsum("hgqd,htd->hgqt", q, k.astype(np.float64)) / math.sqrt(q.shape[3])
    hidden = np.arange(tokens) > np.arange(tokens - newest, tokens)[:, None]
    if mask is not None:
        hidden = hidden | ~mask & (np.arange(tokens) != np.arange(tokens - newest, tokens)[:, None])
    return softmax(np.where(hidden, -np.inf, scores))


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Causal attention in FP64 of [batch, heads, n, d]; a batch's mask is [batch, tokens]."""
    out = [np.einsum("hgqt,htd->hgqd", weights_of(q[b], k[b], q.shape[2], None if mask is None else mask[b]), v[b].astype(np.float64))
           for b in range(len(q))]  # fmt: skip
    return np.stack(out).reshape(q.shape)


FREQUENCY_BASE = 10000.0


def rotate(x: np.ndarray, positions: np.ndarray, back: bool = False) -> np.ndarray:
    """RoPE in FP64, halves as pairs, of [..., n, d] at positions [n]."""
    half = x.shape[-1] // 2
    turn = np.exp((-1j if back else 1j) * positions[:, None] * FREQUENCY_BASE ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([turned.real, turned.imag], -1)


# Rules. q: [q_heads, n, d], k and v: [kv_heads, n, d], at positions [n], after RoPE.
def streaming(q, k, v, positions, budget, sinks=4, **_):
    scores = np.arange(k.shape[1], dtype=np.float64)
    scores[:sinks] = np.inf
    return Decision(np.tile(scores, (len(k), 1)), budget)


def knorm(q, k, v, positions, budget, newest=False, **_):
    """`newest`: the newest token stays whatever its norm, as in kvlab, whose budget holds from the first token on."""
    scores = -np.linalg.norm(k.astype(np.float64), axis=-1)
    if newest:
        scores[:, -1] = np.inf
    return Decision(scores, budget)


def snapkv(q, k, v, positions, budget, window=16, kernel=5, **_):
    votes = weights_of(q, k, window)[..., :-window].sum((1, 2))
    padded = np.pad(votes, ((0, 0), (kernel // 2, kernel // 2)))
    scores = np.full(k.shape[:2], np.inf)
    scores[:, :-window] = np.lib.stride_tricks.sliding_window_view(padded, kernel, -1).sum(-1)
    return Decision(scores, budget)


def pyramid(q, k, v, positions, budget, window=16, kernel=5, beta=20, layer=0, layers=1, **_):
    """kvpress's line: it goes through whole budgets, with the window inside. Rows that it would round below the window: snapkv."""
    n = k.shape[1]
    last, first = budget / beta, 2 * budget - budget / beta
    if first >= n - window:
        first, last = n - window, 2 * budget - (n - window)
    if layers > 1 and n >= first >= last >= window:
        budget = round(first - layer * (first - last) / (layers - 1))
    return snapkv(q, k, v, positions, budget, window, kernel)


def ada(q, k, v, positions, budget, floor=0.0, **own):
    """A share `floor` of every head's rows is its own; all others go to the most votes of the layer."""
    decision = snapkv(q, k, v, positions, budget, **own)
    for scores in decision.scores:
        scores[np.argsort(-scores, kind="stable")[: int(budget * floor)]] = np.inf
    return Decision(decision.scores, budget, together=True)


def tova(q, k, v, positions, budget, layer_mean=False, newest=False, **_):
    """The newest query's attention. `layer_mean`: over all heads, as in the authors' code; else over a kv head's own."""
    scores = weights_of(q, k, 1)[:, :, 0].mean(1)
    if layer_mean:
        scores = np.tile(scores.mean(0), (len(k), 1))
    if newest:
        scores[:, -1] = np.inf
    return Decision(scores, budget)


def expected(q, k, v, positions, budget, sinks=4, future=0, **_):
    """With `future`, queries come back to before RoPE, and get the mean rotation of that many next positions."""
    d, group = k.shape[2], len(q) // len(k)
    q = q.astype(np.float64)[:, sinks:]
    turn = np.eye(d)
    if future:
        q = rotate(q, positions[sinks:], back=True)
        coming = np.arange(positions[-1] + 1, positions[-1] + 1 + future)
        turn = np.stack([rotate(np.tile(row, (future, 1)), coming).mean(0) for row in np.eye(d)], 1)
    scores = np.full(k.shape[:2], np.inf)
    for head, (keys, values) in enumerate(zip(k.astype(np.float64)[:, sinks:], v.astype(np.float64)[:, sinks:], strict=True)):
        weights = []
        for queries in q[head * group : (head + 1) * group]:
            mean, covariance = turn @ queries.mean(0), turn @ np.cov(queries.T, bias=True) @ turn.T
            weights.append(softmax(keys @ mean / math.sqrt(d) + ((keys @ covariance) * keys).sum(-1) / (2 * d)))
        scores[head, sinks:] = np.mean(weights, 0) * np.linalg.norm(values, axis=-1)
    return Decision(scores, budget)


def observed(q, k, v, positions, budget, **_):
    """The mean attention of the queries that see a token."""
    return Decision(weights_of(q, k, k.shape[1]).sum((1, 2)) / np.arange(k.shape[1], 0, -1), budget)


def keydiff(q, k, v, positions, budget, **_):
    unit = k.astype(np.float64) / np.linalg.norm(k.astype(np.float64), axis=-1, keepdims=True)
    anchor = unit.mean(1)
    return Decision(-np.einsum("htd,hd->ht", unit, anchor / np.linalg.norm(anchor, axis=-1, keepdims=True)), budget)


def lagkv(q, k, v, positions, budget, sinks=4, lag=128, **_):
    """Ranks of softmax(std(row, scaled by the next part)); parts of `lag`, of which the last and what follows it stay."""
    scores = np.full(k.shape[:2], np.inf)
    parts = (k.shape[1] - sinks) // lag
    if parts < 2:
        scores[:, sinks:] = np.arange(k.shape[1] - sinks)
        return Decision(scores, budget)
    both = 0
    for side in (k, v):
        split = side[:, sinks : sinks + parts * lag].astype(np.float64).reshape(len(k), parts, lag, -1)
        low, high = split[:, 1:].min(2, keepdims=True), split[:, 1:].max(2, keepdims=True)
        both = both + softmax(((split[:, :-1] - low) / (high - low)).std(-1, ddof=1))
    scores[:, sinks : sinks + (parts - 1) * lag] = both.argsort(-1).argsort(-1).reshape(len(k), -1)
    return Decision(scores, budget)


def cur(q, k, v, positions, budget, sinks=4, window=16, **_):
    """The product of the shares that a token's key and value have of their block's squared norms."""
    starts = np.arange(0, k.shape[1], window)
    scores = np.ones(k.shape[:2])
    for side in (k, v):
        squares = (side.astype(np.float64) ** 2).sum(-1)
        scores *= squares / np.add.reduceat(squares, starts, 1).repeat(window, 1)[:, : k.shape[1]]
    scores[:, :sinks] = np.inf
    return Decision(scores, budget)


def chunkkv(q, k, v, positions, budget, chunk=10, **own):
    """Whole chunks, the same of all heads, by the sum of snapkv's votes; as many as the budget's share of the prompt, rounded down."""
    n = k.shape[1]
    votes = snapkv(q, k, v, positions, budget, **own).scores
    chunks = -(-n // chunk)
    means = np.array([votes[:, at : at + chunk].mean(1).sum() for at in range(0, n, chunk)]).repeat(chunk)[:n]
    return Decision(np.tile(means, (len(k), 1)), n if n <= budget else chunks * budget // n * chunk - (chunks * chunk - n))


RULES = {f.__name__: f for f in (streaming, knorm, snapkv, pyramid, ada, tova, expected, observed, keydiff, lagkv, cur, chunkkv)}
HOLD_EVERY_STEP = {"streaming", "knorm"}  # what they keep after a step does not depend on how tokens came


# Formats. A format loses what a uniform grid or a codebook of N(0,1) loses, whatever the axis of its scales: rows are normal here.
@dataclass(frozen=True)
class Format:
    """`intB` (B-bit codes from the smallest to the largest of `group` numbers), `lloydB` (the best B-bit codebook of N(0,1) under
    a scale a row), `f32`, `f16`, `bf16`. `bits`: a number's, with its share of scales; those of a group are `scale_bits`."""

    name: str
    group: int = 64
    scale_bits: int = 32

    @property
    def code_bits(self) -> int:
        return {"f32": 32, "f16": 16, "bf16": 16}.get(self.name) or int(self.name.removeprefix("int").removeprefix("lloyd"))

    @property
    def bits(self) -> float:
        return self.code_bits + (0.0 if self.code_bits >= 16 else self.scale_bits / self.group)

    def applied(self, x: np.ndarray) -> np.ndarray:
        """x [..., n, d] as it reads back, in FP64."""
        if self.name == "f32":
            return x.astype(np.float64)
        if self.name == "f16":
            return x.astype(np.float16).astype(np.float64)
        if self.name == "bf16":
            bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
            return ((bits + 0x7FFF + (bits >> 16 & 1) >> 16 << 16).astype(np.uint32)).view(np.float32).astype(np.float64)
        wide = x.astype(np.float64)
        if self.name.startswith("lloyd"):
            scale = np.sqrt((wide**2).mean(-1, keepdims=True))
            book = lloyd(self.code_bits)
            return book[np.searchsorted((book[1:] + book[:-1]) / 2, wide / scale)] * scale
        groups = wide.reshape(-1, self.group)
        low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
        step = (high - low) / (2**self.code_bits - 1)
        return (np.round((groups - low) / step) * step + low).reshape(x.shape)


def lloyd(bits: int) -> np.ndarray:
    """The codebook of least squared error for N(0,1), by Lloyd's iteration over quantiles."""
    x = np.linspace(-6, 6, 24001)
    density = np.exp(-x * x / 2)
    book = np.linspace(-2, 2, 2**bits)
    for _ in range(300):
        cell = np.searchsorted((book[1:] + book[:-1]) / 2, x)
        book = np.bincount(cell, density * x, len(book)) / np.bincount(cell, density, len(book))
    return book


def relative_error(read: Any, right: Any) -> float:
    return float(np.linalg.norm(np.asarray(read, np.float64) - right) / np.linalg.norm(right))


def gain(read: Any, given: Any) -> float:
    """The scale that a format leaves on what it reads back: <read, given> / <given, given>."""
    return float((np.asarray(read, np.float64) * given).sum() / (np.asarray(given, np.float64) ** 2).sum())
